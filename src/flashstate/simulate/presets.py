"""The room an engine has for KV and checkpoints: presets of three models, and any config.json."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from flashstate.core.cost import PrefillCostModel
from flashstate.models.geometry import Config, Geometry, geometry

GIB: Final = 2**30
DEFAULT_GEOMETRY: Final = "glm-5.3-flash"

_BLOCK_STEP: Final = 16
"""vLLM's blocks are a multiple of this many tokens."""
_GLM_GIB: Final = 62.45
_MOST_GIB: Final = 1e9
_FP8: Final = 0.5
"""FP8 KV, as a share of 16-bit."""


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
    file = path / "config.json" if path.is_dir() else path
    if file.exists() and not file.is_file():
        raise GeometryError(f"{file}: is not a regular file")
    name = file.parent.name if file.name == "config.json" else file.stem
    try:
        config = json.loads(file.read_text())
        if not isinstance(config, Mapping):
            raise GeometryError("not an object")
        return sized(name or "config.json", config, geometry(config), memory_gib, tp)
    except OSError as error:
        raise GeometryError(f"{file}: {error.strerror or error}") from None
    except KeyError as error:
        raise GeometryError(f"{file}: {error.args[0]} is missing") from None
    except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError) as error:
        raise GeometryError(f"{file}: {error}") from None


def sized(
    name: str, config: Config, size: Geometry, memory_gib: float, tp: int, kv_share: float = 1.0
) -> CacheGeometry:
    """What vLLM makes of a model on `tp` GPUs with `memory_gib` each: blocks as large as one layer's state.

    `kv_share`: bytes of KV against 16-bit. The prefill cost is the one published for GLM-5.3-Flash. Raises
    GeometryError.
    """
    if not 0 < memory_gib <= _MOST_GIB:
        raise GeometryError(f"{memory_gib:g} GiB of memory: must be above 0, and {_MOST_GIB:g} at most")
    heads = config.get("num_key_value_heads", 1)
    if tp < 1 or heads % tp:
        raise GeometryError(f"tensor parallel {tp}: must divide the {heads} KV heads")
    recurrent, attention = size.recurrent_layers, size.attention_layers
    if size.checkpoint_bytes <= 0 or size.kv_bytes_per_token <= 0 or attention >= 1.5 * recurrent:
        raise GeometryError(
            f"{recurrent} recurrent and {attention} attention layers: not a hybrid we can size"
        )
    token_bytes = size.kv_token_bytes * kv_share
    block_tokens = math.ceil(size.state_bytes / token_bytes / _BLOCK_STEP) * _BLOCK_STEP
    layers_a_block = attention if size.checkpoint_blocks > 1 else max(attention, recurrent)
    block_bytes = layers_a_block * block_tokens * token_bytes / tp
    blocks = int(memory_gib * GIB / block_bytes)
    if blocks < 1:
        raise GeometryError(f"{memory_gib:g} GiB of memory: one block takes {block_bytes / GIB:.3g} GiB")
    return CacheGeometry(
        name,
        block_tokens,
        blocks,
        size.checkpoint_blocks,
        memory_gib * GIB,
        size.checkpoint_bytes / tp,
        attention * token_bytes / tp,
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
    found = sized("qwen3.8-flash-next", config, geometry(config), _GLM_GIB, tp=2, kv_share=_FP8)
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
    found = sized("nemotron-3-super", config, geometry(config), 60.0, tp=2, kv_share=_FP8)
    return replace(found, published=("block_tokens", "memory_bytes"))


_PRESETS: Final[Mapping[str, Callable[[], CacheGeometry]]] = {
    "glm-5.3-flash": _glm,
    "qwen3.8-flash-next": _qwen,
    "nemotron-3-super": _nemotron,
}
