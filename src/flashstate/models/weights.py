"""Random weights for the tiny models, the same ones on every machine.

vLLM's dummy weights are all about 1e-3: activations vanish, and what the model says hardly depends on the prompt.
These are drawn so that activations keep their size and the recurrent state forgets slowly, so that a wrong state
shows in the output.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flashstate.models.tokenizer import SPECIAL

Config = Mapping[str, Any]
Tensor = tuple[str, tuple[int, ...]]

# Branches outweigh the residual stream a little, and logits spread over about +-4.
_GAIN: Final = 1.3
# ... and the mixers outweigh the MLPs, or greedy decoding soon runs in circles.
_MLP_GAIN: Final = 0.3
_MLP_OUTPUTS: Final = ("down_proj", "output_linear", ".w2.")


def write_weights(config: Config, path: Path) -> None:
    """Writes all tensors of the model that `config` describes to a safetensors file, in bfloat16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, shape in tensor_shapes(config):
        values = _draw(name, shape, zero_centred_norms=config["model_type"] == "qwen3_next")
        start = len(data)
        data += _bfloat16_bytes(values)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, len(data)]}
    # The whole format: the header's length in 8 bytes, the header as JSON, the data. (numpy knows no bfloat16:
    # the library's own writer would need torch.)
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)


def tensor_shapes(config: Config) -> Iterator[Tensor]:
    """Name and shape of every tensor, as Hugging Face names them."""
    yield from _LAYERS_OF[config["model_type"]](config)


def _draw(name: str, shape: tuple[int, ...], *, zero_centred_norms: bool) -> NDArray[np.float32]:
    random = np.random.default_rng(zlib.crc32(name.encode()))  # by name, so that no tensor depends on another
    if name.endswith("A_log"):
        return random.uniform(np.log(0.002), np.log(0.2), shape).astype(np.float32)
    if name.endswith("dt_bias"):
        return random.uniform(-4.0, -1.0, shape).astype(np.float32)
    if name.endswith("e_score_correction_bias"):
        return random.uniform(-0.1, 0.1, shape).astype(np.float32)
    if name.endswith(".bias"):
        return np.zeros(shape, np.float32)
    if len(shape) == 1:
        zero_centred = zero_centred_norms and not name.endswith("linear_attn.norm.weight")
        return np.zeros(shape, np.float32) if zero_centred else np.ones(shape, np.float32)
    gain = _MLP_GAIN if any(part in name for part in _MLP_OUTPUTS) else _GAIN
    values = random.standard_normal(shape, np.float32) * np.float32(gain / np.sqrt(shape[-1]))
    if name == "lm_head.weight":
        # Greedy decoding never emits a special token: its text would be skipped, and missing from the next prompt.
        values[: len(SPECIAL)] = 0
    return values


def _bfloat16_bytes(values: NDArray[np.float32]) -> bytes:
    return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16).tobytes()


def _attention(prefix: str, config: Config, out: str = "o_proj", gated: bool = False) -> Iterator[Tensor]:
    hidden, head = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    yield f"{prefix}.q_proj.weight", (queries * (2 if gated else 1), hidden)
    yield f"{prefix}.k_proj.weight", (keys, hidden)
    yield f"{prefix}.v_proj.weight", (keys, hidden)
    yield f"{prefix}.{out}.weight", (hidden, queries)


def _mlp(
    prefix: str, hidden: int, inner: int, inputs: tuple[str, ...] = ("gate_proj", "up_proj")
) -> Iterator[Tensor]:
    for name in inputs:
        yield f"{prefix}.{name}.weight", (inner, hidden)
    yield f"{prefix}.down_proj.weight", (hidden, inner)


def _mamba2(
    prefix: str, hidden: int, heads: int, head: int, state: int, kernel: int, norm: bool
) -> Iterator[Tensor]:
    inner = heads * head
    channels = inner + 2 * state  # one group of B and C
    yield f"{prefix}.in_proj.weight", (inner + channels + heads, hidden)
    yield f"{prefix}.conv1d.weight", (channels, 1, kernel)
    yield f"{prefix}.conv1d.bias", (channels,)
    yield f"{prefix}.out_proj.weight", (hidden, inner)
    for name in ("A_log", "D", "dt_bias"):
        yield f"{prefix}.{name}", (heads,)
    if norm:
        yield f"{prefix}.norm.weight", (inner,)


def _qwen3_next(config: Config) -> Iterator[Tensor]:
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    key_heads, value_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    keys, values = key_heads * config["linear_key_head_dim"], value_heads * config["linear_value_head_dim"]
    yield from (("model.embed_tokens.weight", (vocab, hidden)), ("lm_head.weight", (vocab, hidden)))
    yield "model.norm.weight", (hidden,)
    for index, kind in enumerate(config["layer_types"]):
        layer = f"model.layers.{index}"
        yield f"{layer}.input_layernorm.weight", (hidden,)
        yield f"{layer}.post_attention_layernorm.weight", (hidden,)
        if kind == "full_attention":
            yield from _attention(f"{layer}.self_attn", config, gated=True)
            yield f"{layer}.self_attn.q_norm.weight", (config["head_dim"],)
            yield f"{layer}.self_attn.k_norm.weight", (config["head_dim"],)
        else:
            mixer = f"{layer}.linear_attn"
            yield f"{mixer}.in_proj_qkvz.weight", (2 * keys + 2 * values, hidden)
            yield f"{mixer}.in_proj_ba.weight", (2 * value_heads, hidden)
            yield f"{mixer}.conv1d.weight", (2 * keys + values, 1, config["linear_conv_kernel_dim"])
            yield f"{mixer}.A_log", (value_heads,)
            yield f"{mixer}.dt_bias", (value_heads,)
            yield f"{mixer}.norm.weight", (config["linear_value_head_dim"],)
            yield f"{mixer}.out_proj.weight", (hidden, values)
        if index in config["mlp_only_layers"]:
            yield from _mlp(f"{layer}.mlp", hidden, config["intermediate_size"])
        else:
            yield f"{layer}.mlp.gate.weight", (config["num_experts"], hidden)
            yield f"{layer}.mlp.shared_expert_gate.weight", (1, hidden)
            yield from _mlp(f"{layer}.mlp.shared_expert", hidden, config["shared_expert_intermediate_size"])
            for expert in range(config["num_experts"]):
                yield from _mlp(f"{layer}.mlp.experts.{expert}", hidden, config["moe_intermediate_size"])


def _kimi_linear(config: Config) -> Iterator[Tensor]:
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    yield from (("model.embed_tokens.weight", (vocab, hidden)), ("lm_head.weight", (vocab, hidden)))
    yield "model.norm.weight", (hidden,)
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        yield f"{layer}.input_layernorm.weight", (hidden,)
        yield f"{layer}.post_attention_layernorm.weight", (hidden,)
        is_recurrent = index + 1 in config["linear_attn_config"]["kda_layers"]
        yield from (_kda if is_recurrent else _mla)(f"{layer}.self_attn", config)
        if index < config["first_k_dense_replace"]:
            yield from _mlp(f"{layer}.mlp", hidden, config["intermediate_size"])
        else:
            yield from _kimi_experts(f"{layer}.block_sparse_moe", config)


def _kda(prefix: str, config: Config) -> Iterator[Tensor]:
    hidden, linear = config["hidden_size"], config["linear_attn_config"]
    heads, head = linear["num_heads"], linear["head_dim"]
    for name in ("q", "k", "v"):
        yield f"{prefix}.{name}_proj.weight", (heads * head, hidden)
        yield f"{prefix}.{name}_conv1d.weight", (heads * head, 1, linear["short_conv_kernel_size"])
    for name in ("f", "g"):
        yield f"{prefix}.{name}_a_proj.weight", (head, hidden)
        yield f"{prefix}.{name}_b_proj.weight", (heads * head, head)
    yield f"{prefix}.b_proj.weight", (heads, hidden)
    yield f"{prefix}.A_log", (1, 1, heads, 1)
    yield f"{prefix}.dt_bias", (heads * head,)
    yield f"{prefix}.o_norm.weight", (head,)
    yield f"{prefix}.o_proj.weight", (hidden, heads * head)


def _mla(prefix: str, config: Config) -> Iterator[Tensor]:
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    yield f"{prefix}.q_proj.weight", (heads * (nope + rope), hidden)
    yield f"{prefix}.kv_a_proj_with_mqa.weight", (rank + rope, hidden)
    yield f"{prefix}.kv_a_layernorm.weight", (rank,)
    yield f"{prefix}.kv_b_proj.weight", (heads * (nope + value), rank)
    yield f"{prefix}.o_proj.weight", (hidden, heads * value)


def _kimi_experts(prefix: str, config: Config) -> Iterator[Tensor]:
    hidden, inner, experts = config["hidden_size"], config["moe_intermediate_size"], config["num_experts"]
    yield f"{prefix}.gate.weight", (experts, hidden)
    yield f"{prefix}.gate.e_score_correction_bias", (experts,)
    yield from _mlp(f"{prefix}.shared_experts", hidden, inner * config["num_shared_experts"])
    for expert in range(experts):
        yield f"{prefix}.experts.{expert}.w1.weight", (inner, hidden)
        yield f"{prefix}.experts.{expert}.w3.weight", (inner, hidden)
        yield f"{prefix}.experts.{expert}.w2.weight", (hidden, inner)


def _nemotron_h(config: Config) -> Iterator[Tensor]:
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    yield from (("backbone.embeddings.weight", (vocab, hidden)), ("lm_head.weight", (vocab, hidden)))
    yield "backbone.norm_f.weight", (hidden,)
    for index, kind in enumerate(config["hybrid_override_pattern"]):
        mixer = f"backbone.layers.{index}.mixer"
        yield f"backbone.layers.{index}.norm.weight", (hidden,)
        if kind == "M":
            heads, head = config["mamba_num_heads"], config["mamba_head_dim"]
            state, kernel = config["ssm_state_size"], config["conv_kernel"]
            yield from _mamba2(mixer, hidden, heads, head, state, kernel, norm=True)
        elif kind == "*":
            yield from _attention(mixer, config)
        else:
            yield from _mlp(mixer, hidden, config["intermediate_size"], inputs=("up_proj",))


def _mamba_layer(prefix: str, config: Config, norm: bool) -> Iterator[Tensor]:
    heads, head = config["mamba_n_heads"], config["mamba_d_head"]
    yield from _mamba2(
        prefix, config["hidden_size"], heads, head, config["mamba_d_state"], config["mamba_d_conv"], norm
    )


def _granite(config: Config) -> Iterator[Tensor]:
    hidden, vocab, inner = config["hidden_size"], config["vocab_size"], config["shared_intermediate_size"]
    yield from (("model.embed_tokens.weight", (vocab, hidden)), ("lm_head.weight", (vocab, hidden)))
    yield "model.norm.weight", (hidden,)
    for index, kind in enumerate(config["layer_types"]):
        layer = f"model.layers.{index}"
        yield f"{layer}.input_layernorm.weight", (hidden,)
        yield f"{layer}.post_attention_layernorm.weight", (hidden,)
        if kind == "attention":
            yield from _attention(f"{layer}.self_attn", config)
        else:
            yield from _mamba_layer(f"{layer}.mamba", config, norm=True)
        yield f"{layer}.shared_mlp.input_linear.weight", (2 * inner, hidden)
        yield f"{layer}.shared_mlp.output_linear.weight", (hidden, inner)


def _falcon_h1(config: Config) -> Iterator[Tensor]:
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    yield from (("model.embed_tokens.weight", (vocab, hidden)), ("lm_head.weight", (vocab, hidden)))
    yield "model.final_layernorm.weight", (hidden,)
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        yield f"{layer}.input_layernorm.weight", (hidden,)
        yield f"{layer}.pre_ff_layernorm.weight", (hidden,)
        yield from _attention(f"{layer}.self_attn", config)
        yield from _mamba_layer(f"{layer}.mamba", config, norm=config["mamba_rms_norm"])
        yield from _mlp(f"{layer}.feed_forward", hidden, config["intermediate_size"])


def _lfm2(config: Config) -> Iterator[Tensor]:
    hidden, vocab, inner = config["hidden_size"], config["vocab_size"], config["intermediate_size"]
    yield from (("model.embed_tokens.weight", (vocab, hidden)), ("lm_head.weight", (vocab, hidden)))
    yield "model.embedding_norm.weight", (hidden,)
    for index, kind in enumerate(config["layer_types"]):
        layer = f"model.layers.{index}"
        yield f"{layer}.operator_norm.weight", (hidden,)
        yield f"{layer}.ffn_norm.weight", (hidden,)
        if kind == "full_attention":
            yield from _attention(f"{layer}.self_attn", config, out="out_proj")
            yield f"{layer}.self_attn.q_layernorm.weight", (config["head_dim"],)
            yield f"{layer}.self_attn.k_layernorm.weight", (config["head_dim"],)
        else:
            yield f"{layer}.conv.conv.weight", (hidden, 1, config["conv_L_cache"])
            yield f"{layer}.conv.in_proj.weight", (3 * hidden, hidden)
            yield f"{layer}.conv.out_proj.weight", (hidden, hidden)
        for name in ("w1", "w3"):
            yield f"{layer}.feed_forward.{name}.weight", (inner, hidden)
        yield f"{layer}.feed_forward.w2.weight", (hidden, inner)


_LAYERS_OF: Final = {
    "qwen3_next": _qwen3_next,
    "kimi_linear": _kimi_linear,
    "nemotron_h": _nemotron_h,
    "granitemoehybrid": _granite,
    "falcon_h1": _falcon_h1,
    "lfm2": _lfm2,
}
