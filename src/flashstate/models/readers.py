"""The layers of each model kind, from its config.json.

Field names are those of the configs that transformers and vLLM 0.32 read; what a state holds is what vLLM's
`get_mamba_state_shape_from_config` of the model says. MiniMax left vLLM after 0.23: its layers are as it had them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from flashstate.models.config_fields import Config, Fields
from flashstate.models.layers import Attention, Indexer, Recurrent

STATE_ITEM_BYTES: Final = 4
"""Recurrent states are kept in float32 (vLLM: --mamba-ssm-cache-dtype float32, what every kernel computes in)."""
ITEM_BYTES: Final = 2
"""Convolution inputs, and KV unless asked otherwise, have the model's 16-bit type."""

_RECURRENT: Final = frozenset({"linear_attention", "mamba", "conv", "M"})
_ATTENTION: Final = frozenset({"full_attention", "indexed_attention", "attention", "*"})
_NEITHER: Final = frozenset({"moe", "mlp", "E", "-"})

_INDEX_GROUP: Final = 128
"""Elements of an indexer key that share a scale of 4 bytes; the key itself is 8-bit."""

Layers = tuple[Recurrent, Attention]


def layers_of(config: Config) -> tuple[str, Layers]:
    """The model type and the layers of a config.json, already parsed; those of its text model, if it has others.

    Raises ValueError with one line: a model type we cannot size, or a field that is missing or makes no sense.
    """
    fields = Fields(config)
    kinds = [config.get("model_type")]
    if fields.has("text_config"):
        fields = fields.part("text_config")
        kinds.insert(0, fields.values.get("model_type"))
    for kind in kinds:
        if isinstance(kind, str) and kind in _READERS:
            return kind, _READERS[kind](fields)
    raise ValueError(f"cannot size a model of type {kinds[-1]!r:.60}: known types are {', '.join(_READERS)}")


def _count(fields: Fields, *names: str) -> tuple[int, int]:
    """Recurrent and attention layers of a list, or a pattern, of layer kinds."""
    kinds = fields.items(*names)
    for kind in kinds:
        if not isinstance(kind, str) or kind not in _RECURRENT | _ATTENTION | _NEITHER:
            raise ValueError(f"{names[0]}: {ascii(kind)[:40]} is no kind of layer that we can size")
    return sum(kind in _RECURRENT for kind in kinds), sum(kind in _ATTENTION for kind in kinds)


def _every(fields: Fields, interval: int) -> tuple[int, int]:
    """Recurrent and attention layers where every `interval`-th is attention."""
    layers = fields.whole("num_hidden_layers")
    return layers - layers // interval, layers // interval


def _softmax(fields: Fields, layers: int) -> Attention:
    heads = fields.whole("num_attention_heads") if fields.has("num_attention_heads") else None
    head = _head_elements(fields)
    kv_heads = fields.whole("num_key_value_heads", "num_attention_heads")
    return Attention("attention", layers, kv_heads, 2 * head, heads)


def _head_elements(fields: Fields) -> int:
    if fields.has("head_dim"):
        return fields.whole("head_dim")
    return fields.whole("hidden_size") // fields.whole("num_attention_heads")


def _latent(fields: Fields, layers: int, indexer: Indexer | None = None) -> Attention:
    latent = fields.whole("kv_lora_rank") + fields.whole("qk_rope_head_dim", least=0)
    return Attention("MLA", layers, 1, latent, fields.whole("num_attention_heads"), indexer or Indexer())


def _inputs(channels: int, taps: int) -> int:
    """Bytes of the last inputs that a causal convolution needs."""
    return (taps - 1) * channels * ITEM_BYTES


def _gated_delta_net(fields: Fields) -> Layers:
    """Qwen3-Next and Qwen3.5: a key-by-value matrix for each value head; q, k and v are convolved."""
    if fields.has("layer_types"):
        recurrent, attention = _count(fields, "layer_types")
    else:
        interval = fields.whole("full_attention_interval") if fields.has("full_attention_interval") else 4
        recurrent, attention = _every(fields, interval)
    key_heads, value_heads = fields.whole("linear_num_key_heads"), fields.whole("linear_num_value_heads")
    key, value = fields.whole("linear_key_head_dim"), fields.whole("linear_value_head_dim")
    channels = 2 * key_heads * key + value_heads * value
    linear = Recurrent(
        "GDN",
        recurrent,
        value_heads * value * key * STATE_ITEM_BYTES,
        _inputs(channels, fields.whole("linear_conv_kernel_dim")),
        (("key heads", key_heads), ("value heads", value_heads)),
    )
    return linear, _softmax(fields, attention)


def _kimi_delta(fields: Fields, layers: int) -> Recurrent:
    """Kimi Delta Attention: a square matrix for each head; q, k and v are convolved.

    Older configs keep its fields in an object of their own.
    """
    if fields.has("linear_attn_config"):
        own = fields.part("linear_attn_config")
        names = ("num_heads", "head_dim", "short_conv_kernel_size")
    else:
        own, names = fields, ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    heads, head, taps = (own.whole(name) for name in names)
    state = heads * head * head * STATE_ITEM_BYTES
    return Recurrent("KDA", layers, state, _inputs(3 * heads * head, taps), (("state heads", heads),))


def _kimi(fields: Fields) -> Layers:
    """Kimi-Linear and Kimi-K3: KDA and MLA."""
    if fields.has("layer_types"):
        recurrent, attention = _count(fields, "layer_types")
    else:
        own = fields.part("linear_attn_config")
        recurrent, attention = len(own.items("kda_layers")), len(own.items("full_attn_layers"))
    return _kimi_delta(fields, recurrent), _latent(fields, attention)


def _glm(fields: Fields) -> Layers:
    """GLM-5.3-Flash: KDA, and MLA behind a sparse-attention indexer that compresses keys in groups."""
    recurrent, attention = _count(fields, "layer_types") if fields.has("layer_types") else _every(fields, 4)
    indexer = Indexer()
    if fields.has("index_topk"):
        head, group = fields.whole("index_head_dim"), fields.whole("index_kpool")
        key_bytes = head + head // _INDEX_GROUP * 4
        # The open group: a raw 16-bit key and gate score for each of its tokens.
        indexer = Indexer(key_bytes / group, 2 * head * group * ITEM_BYTES)
    return _kimi_delta(fields, recurrent), _latent(fields, attention, indexer)


def _mamba2(layers: int, heads: int, head: int, state: int, groups: int, taps: int) -> Recurrent:
    """Mamba-2: a head-by-state matrix for each head; x, B and C are convolved.

    A single group of B and C cannot be shared out, so every GPU has it; several are, with the heads.
    """
    shared = _inputs(2 * groups * state, taps)
    split: tuple[tuple[str, int], ...] = (("state heads", heads),)
    own, copied = _inputs(heads * head, taps), shared
    if groups > 1:
        split, own, copied = (*split, ("state groups", groups)), own + shared, 0
    return Recurrent("Mamba-2", layers, heads * head * state * STATE_ITEM_BYTES, own, split, copied)


def _nemotron_h(fields: Fields) -> Layers:
    recurrent, attention = _count(fields, "layers_block_type", "layer_types", "hybrid_override_pattern")
    mamba = _mamba2(
        recurrent,
        fields.whole("mamba_num_heads"),
        fields.whole("mamba_head_dim"),
        fields.whole("ssm_state_size"),
        fields.whole("n_groups", "mamba_n_groups"),
        fields.whole("conv_kernel", "mamba_d_conv"),
    )
    return mamba, _softmax(fields, attention)


def _prefixed_mamba2(fields: Fields, layers: int, inner: int | None = None) -> Recurrent:
    """Mamba-2 of Granite and Falcon-H1, whose fields begin alike. `inner`: heads x head, where a field says so."""
    heads = fields.whole("mamba_n_heads")
    if inner is None and fields.has("mamba_d_head") and fields.values["mamba_d_head"] != "auto":
        inner = heads * fields.whole("mamba_d_head")
    if inner is None:
        inner = fields.whole("mamba_expand") * fields.whole("hidden_size")
    if inner % heads:
        raise ValueError(f"mamba_n_heads is {heads}: must divide the {inner} inner channels")
    return _mamba2(
        layers,
        heads,
        inner // heads,
        fields.whole("mamba_d_state"),
        fields.whole("mamba_n_groups"),
        fields.whole("mamba_d_conv"),
    )


def _granite(fields: Fields) -> Layers:
    recurrent, attention = _count(fields, "layer_types", "layers_block_type")
    return _prefixed_mamba2(fields, recurrent), _softmax(fields, attention)


def _falcon_h1(fields: Fields) -> Layers:
    """Every layer has both."""
    layers = fields.whole("num_hidden_layers")
    inner = fields.whole("mamba_d_ssm") if fields.has("mamba_d_ssm") else None
    return _prefixed_mamba2(fields, layers, inner), _softmax(fields, layers)


def _jamba(fields: Fields) -> Layers:
    """Mamba-1: a state vector for each inner channel; the channels are convolved."""
    layers = fields.whole("num_hidden_layers")
    attention = len(
        range(fields.whole("attn_layer_offset", least=0), layers, fields.whole("attn_layer_period"))
    )
    inner = fields.whole("mamba_expand") * fields.whole("hidden_size")
    mamba = Recurrent(
        "Mamba-1",
        layers - attention,
        inner * fields.whole("mamba_d_state") * STATE_ITEM_BYTES,
        _inputs(inner, fields.whole("mamba_d_conv")),
        (("inner channels", inner),),
    )
    return mamba, _softmax(fields, attention)


def _lfm2(fields: Fields) -> Layers:
    """Short convolutions alone: no recurrent state but their inputs."""
    if fields.has("layer_types"):
        recurrent, attention = _count(fields, "layer_types")
    else:
        attention = len(fields.items("full_attn_idxs"))
        recurrent = fields.whole("num_hidden_layers") - attention
    channels = fields.whole("conv_dim", "hidden_size")
    inputs = _inputs(channels, fields.whole("conv_L_cache"))
    return Recurrent("short convolution", recurrent, 0, inputs, (("channels", channels),)), _softmax(
        fields, attention
    )


def _minimax(fields: Fields) -> Layers:
    """Lightning attention: a square matrix for each head, nothing convolved. The older config marks attention by 1."""
    if fields.has("layer_types"):
        recurrent, attention = _count(fields, "layer_types")
    else:
        kinds = [_marked(kind) for kind in fields.items("attn_type_list")]
        recurrent, attention = kinds.count(0), kinds.count(1)
    heads, head = fields.whole("num_attention_heads"), _head_elements(fields)
    state = heads * head * head * STATE_ITEM_BYTES
    return Recurrent("lightning attention", recurrent, state, 0, (("state heads", heads),)), _softmax(
        fields, attention
    )


def _marked(kind: Any) -> int:
    if type(kind) is not int or kind not in (0, 1):
        raise ValueError(f"attn_type_list: {ascii(kind)[:40]} is neither 0 nor 1")
    return kind


_READERS: Final[Mapping[str, Callable[[Fields], Layers]]] = {
    "qwen3_next": _gated_delta_net,
    "qwen3_5": _gated_delta_net,
    "qwen3_5_text": _gated_delta_net,
    "qwen3_5_moe": _gated_delta_net,
    "qwen3_5_moe_text": _gated_delta_net,
    "glm5_next": _glm,
    "glm5_next_text": _glm,
    "kimi_linear": _kimi,
    "kimi_k3": _kimi,
    "nemotron_h": _nemotron_h,
    "granitemoehybrid": _granite,
    "falcon_h1": _falcon_h1,
    "jamba": _jamba,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "minimax": _minimax,
    "minimax_text_01": _minimax,
    "minimax_m1": _minimax,
}
