"""How large a model's checkpoint and KV are, from its config.json alone.

A checkpoint holds, for every recurrent layer, the recurrent state in float32 and the last inputs of its
convolution in the model's 16-bit type. Sizes are those of the whole model, before any tensor parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_STATE_ITEM_BYTES: Final = 4
_ITEM_BYTES: Final = 2

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Geometry:
    """What one sequence keeps. Layers that have both an SSM and attention count in both numbers."""

    recurrent_layers: int
    attention_layers: int
    state_bytes: int  # recurrent state and convolution inputs, one recurrent layer
    kv_token_bytes: int  # keys and values of one token, one attention layer

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of one checkpoint, all recurrent layers."""
        return self.recurrent_layers * self.state_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV that one token adds, all attention layers."""
        return self.attention_layers * self.kv_token_bytes

    @property
    def smallest_block_tokens(self) -> int:
        """Fewest tokens in a block of KV that is as large as one layer's state (vLLM rounds it up)."""
        return math.ceil(self.state_bytes / self.kv_token_bytes)

    @property
    def checkpoint_blocks(self) -> int:
        """Blocks that one checkpoint takes in vLLM.

        A block has room for as many layers as there are of the rarer kind (of the commoner kind, if that is
        less than half as many again); every group of that many recurrent layers takes one block.
        """
        fewer, more = sorted((self.recurrent_layers, self.attention_layers))
        layers_a_block = more if more < 1.5 * fewer else fewer
        return math.ceil(self.recurrent_layers / layers_a_block)


def geometry(config: Config) -> Geometry:
    """Reads a config.json, already parsed. Raises ValueError for a model type we cannot size."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _READERS:
        raise ValueError(f"cannot size a model of type {kind!r}: known types are {', '.join(_READERS)}")
    return _READERS[kind](config)


def _kv_token_bytes(config: Config) -> int:
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return 2 * int(config["num_key_value_heads"]) * int(head) * _ITEM_BYTES


def _state_bytes(elements: int, channels: int, taps: int) -> int:
    return elements * _STATE_ITEM_BYTES + (taps - 1) * channels * _ITEM_BYTES


def _mamba2(config: Config, prefix: str, inner: int) -> int:
    """Bytes of one Mamba-2 layer; `prefix` is what the family puts before the names of these fields."""
    state = config[f"{prefix}d_state"]
    channels = inner + 2 * config[f"{prefix}n_groups"] * state
    return _state_bytes(inner * state, channels, config[f"{prefix}d_conv"])


def _count(kinds: list[str] | str, kind: str) -> int:
    return sum(1 for each in kinds if each == kind)


def _qwen3_next(config: Config) -> Geometry:
    layers = config.get("layer_types")
    if layers is None:
        interval = config.get("full_attention_interval", 4)
        numbers = range(1, config["num_hidden_layers"] + 1)
        layers = ["full_attention" if n % interval == 0 else "linear_attention" for n in numbers]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    state = values * config["linear_key_head_dim"]
    return Geometry(
        recurrent_layers=_count(layers, "linear_attention"),
        attention_layers=_count(layers, "full_attention"),
        state_bytes=_state_bytes(state, 2 * keys + values, config["linear_conv_kernel_dim"]),
        kv_token_bytes=_kv_token_bytes(config),
    )


def _nemotron_h(config: Config) -> Geometry:
    pattern = config["hybrid_override_pattern"]
    inner, state = config["mamba_num_heads"] * config["mamba_head_dim"], config["ssm_state_size"]
    channels = inner + 2 * config["n_groups"] * state
    return Geometry(
        recurrent_layers=_count(pattern, "M"),
        attention_layers=_count(pattern, "*"),
        state_bytes=_state_bytes(inner * state, channels, config["conv_kernel"]),
        kv_token_bytes=_kv_token_bytes(config),
    )


def _granite(config: Config) -> Geometry:
    layers = config["layer_types"]
    return Geometry(
        recurrent_layers=_count(layers, "mamba"),
        attention_layers=_count(layers, "attention"),
        state_bytes=_mamba2(config, "mamba_", config["mamba_n_heads"] * config["mamba_d_head"]),
        kv_token_bytes=_kv_token_bytes(config),
    )


def _falcon_h1(config: Config) -> Geometry:
    layers = config["num_hidden_layers"]
    return Geometry(
        recurrent_layers=layers,
        attention_layers=layers,
        state_bytes=_mamba2(config, "mamba_", config["mamba_d_ssm"]),
        kv_token_bytes=_kv_token_bytes(config),
    )


def _lfm2(config: Config) -> Geometry:
    layers = config["layer_types"]
    return Geometry(
        recurrent_layers=_count(layers, "conv"),
        attention_layers=_count(layers, "full_attention"),
        state_bytes=_state_bytes(0, config["hidden_size"], config["conv_L_cache"]),
        kv_token_bytes=_kv_token_bytes(config),
    )


_READERS: Final[Mapping[str, Callable[[Config], Geometry]]] = {
    "qwen3_next": _qwen3_next,
    "nemotron_h": _nemotron_h,
    "granitemoehybrid": _granite,
    "falcon_h1": _falcon_h1,
    "lfm2": _lfm2,
}
