"""The room an engine has for KV and checkpoints: presets of three models, and any config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from flashstate.core.cost import PrefillCostModel
from flashstate.models.geometry import Geometry, geometry
from flashstate.models.model_file import ConfigError, read_model

GIB: Final = 2**30
DEFAULT_GEOMETRY: Final = "glm-5.3-flash"

_GLM_GIB: Final = 62.45
_MOST_GIB: Final = 1e9
_FP8: Final = 1
"""Bytes of an element of KV in FP8."""


class GeometryError(ValueError):
    """A geometry that cannot be simulated. One line: the value, the limit, the way out."""


@dataclass(frozen=True, slots=True)
class CacheGeometry:
    """One GPU's cache in blocks, and what prefill costs.

    `memory_bytes`: of the cache. `checkpoint_bytes` and `kv_token_bytes`: of one checkpoint and of one token's KV,
    not padded to blocks. All a GPU. `published` names the fields that the article or the paper gives; the rest is ours.
    """

    name: str
    block_tokens: int
    blocks: int
    checkpoint_blocks: int
    memory_bytes: float
    checkpoint_bytes: float
    kv_token_bytes: float
    published: tuple[str, ...] = ()
    cost: PrefillCostModel = field(default_factory=PrefillCostModel)

    def __post_init__(self) -> None:
        for name in ("block_tokens", "blocks", "checkpoint_blocks"):
            if getattr(self, name) < 1:
                raise GeometryError(f"{name.replace('_', ' ')} {getattr(self, name)}: must be 1 or more")

    def with_blocks(self, blocks: int) -> CacheGeometry:
        """The same model with another amount of memory."""
        published = tuple(name for name in self.published if name not in ("blocks", "memory_bytes"))
        memory = self.memory_bytes * blocks / self.blocks
        return replace(self, blocks=blocks, memory_bytes=memory, published=published)

    def with_cost(self, cost: PrefillCostModel) -> CacheGeometry:
        """The same cache where prefill costs something else."""
        return replace(self, cost=cost, published=tuple(name for name in self.published if name != "cost"))

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return values | {"cost": {"d": self.cost.d, "e": self.cost.e}, "published": list(self.published)}


def preset_names() -> list[str]:
    """Names that `preset` knows."""
    return list(_PRESETS)


def preset(name: str) -> CacheGeometry:
    """The geometry called `name`. Raises GeometryError for an unknown one."""
    if name not in _PRESETS:
        raise GeometryError(f"geometry {name!r}: unknown; one of {', '.join(_PRESETS)}, or a config.json")
    return _PRESETS[name]()


def from_config(path: Path, memory_gib: float, tp: int) -> CacheGeometry:
    """What a model would have, from its config.json or the folder of it. Raises GeometryError."""
    try:
        model = read_model(path)
        size = model.geometry(tp)
    except ConfigError as error:
        raise GeometryError(str(error)) from None
    try:
        return sized(model.name, size, memory_gib)
    except GeometryError as error:
        raise GeometryError(f"{model.path}: {error}") from None


def sized(name: str, size: Geometry, memory_gib: float) -> CacheGeometry:
    """What vLLM makes of a model with `memory_gib` on each GPU: blocks as large as one layer's state.

    The prefill cost is the one published for GLM-5.3-Flash. Raises GeometryError.
    """
    if not 0 < memory_gib <= _MOST_GIB:
        raise GeometryError(f"{memory_gib:g} GiB of memory: must be above 0, and {_MOST_GIB:g} at most")
    block = size.blocks()
    blocks = int(memory_gib * GIB / block.block_bytes)
    if blocks < 1:
        raise GeometryError(
            f"{memory_gib:g} GiB of memory: one block takes {block.block_bytes / GIB:.3g} GiB"
        )
    return CacheGeometry(
        name,
        block.tokens,
        blocks,
        block.checkpoint_blocks,
        memory_gib * GIB,
        float(size.checkpoint_bytes),
        float(size.kv_bytes_per_token),
    )


def _glm() -> CacheGeometry:
    """As published, TP 2: 34 KDA layers (64 heads of 128 x 128 in fp32, 4 taps of 16-bit), 11 of sparse attention."""
    state = 34 * (64 * 128 * 128 * 4 + 3 * (3 * 64 * 128) * 2)
    memory, blocks, block_tokens = _GLM_GIB * GIB, 2531, 4352
    kv_token_bytes = memory / blocks / block_tokens
    published = ("block_tokens", "blocks", "checkpoint_blocks", "memory_bytes", "checkpoint_bytes", "cost")
    return CacheGeometry(
        "glm-5.3-flash", block_tokens, blocks, 5, memory, state / 2, kv_token_bytes, published
    )


def _qwen() -> CacheGeometry:
    """Published: the blocks' length. Ours: the config, FP8 KV (it gives that length), GLM's memory and cost."""
    config = {
        "model_type": "qwen3_next",
        "num_hidden_layers": 48,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "num_key_value_heads": 2,
        "head_dim": 256,
    }
    found = sized("qwen3.8-flash-next", geometry(config, 2, _FP8), _GLM_GIB)
    return replace(found, published=("block_tokens",))


def _nemotron() -> CacheGeometry:
    """Published: the blocks' length, 60 GiB a GPU. Ours: the config, FP8 KV (it gives that length), GLM's cost."""
    config = {
        "model_type": "nemotron_h",
        "hybrid_override_pattern": "M" * 40 + "*" * 8,
        "mamba_num_heads": 128,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
        "n_groups": 8,
        "conv_kernel": 4,
        "num_key_value_heads": 2,
        "head_dim": 128,
    }
    found = sized("nemotron-3-super", geometry(config, 2, _FP8), 60.0)
    return replace(found, published=("block_tokens", "memory_bytes"))


_PRESETS: Final[Mapping[str, Callable[[], CacheGeometry]]] = {
    "glm-5.3-flash": _glm,
    "qwen3.8-flash-next": _qwen,
    "nemotron-3-super": _nemotron,
}
