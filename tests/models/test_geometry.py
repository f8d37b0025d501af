"""Sizes of published models, checked against figures worked out from their configs by hand."""

from __future__ import annotations

from typing import Any

import pytest

from flashstate.models.families import FAMILIES
from flashstate.models.geometry import geometry
from tests.models.make import (
    FALCON,
    GLM,
    GRANITE,
    JAMBA,
    KIMI_K3,
    KIMI_LINEAR,
    LFM2,
    MINIMAX,
    NEMOTRON,
    QWEN3_NEXT,
    QWEN35,
    Config,
    without,
)

MIB, KIB, MB = 2**20, 2**10, 1e6

PUBLISHED: dict[str, tuple[Config, float, float, int]] = {
    # config, checkpoint in MiB, KV in KiB a token, blocks a checkpoint
    "Qwen3-Next-80B": (QWEN3_NEXT, 74, 24, 3),
    "Qwen3.5-397B": (QWEN35, 183, 30, 3),
    "Nemotron 3 Super": (NEMOTRON, 162, 8, 5),
    "Kimi-Linear": (KIMI_LINEAR, 41, 7.9, 3),
    "Kimi-K3": (KIMI_K3, 429, 27, 3),
    "Falcon-H1-7B": (FALCON, 133, 44, 1),
    "Granite-4.0-H-Small": (GRANITE, 146, 16, 9),
    "Jamba-v0.1": (JAMBA, 15, 16, 7),
    "LFM2-1.2B": (LFM2, 0.08, 12, 2),
    "MiniMax-Text-01": (MINIMAX, 280, 40, 7),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str) -> None:
    config, checkpoint_mib, kv_kib, blocks = PUBLISHED[name]
    size = geometry(config)
    assert round(size.checkpoint_bytes / MIB, 2 if checkpoint_mib < 1 else 0) == checkpoint_mib
    assert round(size.kv_bytes_per_token / KIB, 1) == kv_kib
    assert size.checkpoint_blocks == blocks


def test_glm_is_as_published() -> None:
    whole, gpu = geometry(GLM), geometry(GLM, 2)
    assert (whole.recurrent_layers, whole.attention_layers) == (34, 11)
    assert (whole.recurrent_bytes, whole.convolution_bytes) == (4_194_304, 147_456)
    assert whole.checkpoint_bytes / MB == pytest.approx(147.6, abs=0.05)
    assert gpu.checkpoint_bytes / MB == pytest.approx(73.8, abs=0.05)
    blocks = gpu.blocks(4352)
    assert (blocks.checkpoint_blocks, blocks.checkpoint_tokens) == (5, 21_760)


@pytest.mark.parametrize(("config", "tokens"), [(GLM, 4352), (NEMOTRON, 8320)])
def test_published_block_lengths_are_those_of_fp8_kv(config: Config, tokens: int) -> None:
    # Both published at TP 2. GLM: 2,170,880 B of state / 512 B of latent = 4,240, in steps of 128.
    assert geometry(config, 2, kv_item_bytes=1).block_tokens == tokens


def test_glm_keeps_keys_of_its_indexer_and_an_open_group() -> None:
    # 132 B for 16 tokens, and raw keys and scores of up to 16, by 11 layers.
    whole, gpu = geometry(GLM), geometry(GLM, 8)
    assert whole.kv_bytes_per_token == gpu.kv_bytes_per_token == round(11 * (1024 + 132 / 16))
    assert whole.auxiliary_bytes == gpu.auxiliary_bytes == 11 * 16 * 2 * 128 * 2
    # vLLM 0.32's own grouping of such layers makes blocks of 24,905,408 B, four for states and one for the groups.
    assert geometry(GLM, 2, kv_item_bytes=1).blocks(4352).block_bytes == 24_905_408
    plain = geometry({**GLM, "text_config": without(GLM["text_config"], "index_topk")})
    assert (plain.auxiliary_bytes, plain.checkpoint_blocks) == (0, 4)


def test_kv_heads_are_shared_out_then_copied() -> None:
    assert [geometry(QWEN3_NEXT, tp).kv_token_bytes for tp in (1, 2, 4, 8)] == [2048, 1024, 1024, 1024]


def test_a_latent_is_on_every_gpu() -> None:
    one, eight = geometry(KIMI_LINEAR), geometry(KIMI_LINEAR, 8)
    assert one.kv_token_bytes == eight.kv_token_bytes == 1152
    assert one.state_bytes == 8 * eight.state_bytes
    assert eight.block_tokens == 256  # 271,360 / 1,152 = 236, in steps of 128


def test_a_single_state_group_is_copied_several_are_shared_out() -> None:
    # 3 taps of 16 bits. Granite: 8,192 channels split, 2 x 128 copied. Nemotron: all 8,192 + 2 x 8 x 128 split.
    assert geometry(GRANITE, 4).convolution_bytes == 3 * 2 * (8192 // 4 + 256)
    assert geometry(NEMOTRON, 4).convolution_bytes == 3 * 2 * 10_240 // 4


@pytest.mark.parametrize(
    ("config", "tp", "reason"),
    [
        (QWEN3_NEXT, 0, "tensor parallel 0: must be 1 or more"),
        (QWEN3_NEXT, -2, "tensor parallel -2: must be 1 or more"),
        (QWEN3_NEXT, 3, "tensor parallel 3: must divide the 2 KV heads, or be a multiple of them"),
        (QWEN3_NEXT, 32, "tensor parallel 32: must divide the 16 key heads"),
        (QWEN35, 6, "tensor parallel 6: must divide the 32 attention heads"),
        (GLM, 128, "tensor parallel 128: must divide the 64 attention heads"),
        (NEMOTRON, 16, "tensor parallel 16: must divide the 8 state groups"),
        (FALCON, 16, "tensor parallel 16: must divide the 24 state heads"),
    ],
)
def test_gpus_that_cannot_share_the_heads_out(config: Config, tp: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        geometry(config, tp)


@pytest.mark.parametrize(
    ("tokens", "limit"), [(0, "1056 or more"), (1040, "1056 or more"), (1060, "a multiple of 16")]
)
def test_blocks_that_vllm_would_not_use(tokens: int, limit: str) -> None:
    with pytest.raises(ValueError, match=f"block tokens {tokens}: must be .*{limit}"):
        geometry(QWEN3_NEXT).blocks(tokens)


@pytest.mark.parametrize(
    "config",
    [
        without(NEMOTRON, "hybrid_override_pattern")
        | {"layers_block_type": ["mamba", "moe"] * 40 + ["attention"] * 8},
        without(NEMOTRON, "n_groups") | {"mamba_n_groups": 8},
        {"model_type": "nemotron_h", "text_config": NEMOTRON},
    ],
)
def test_other_spellings_of_a_config(config: Config) -> None:
    assert geometry(config) == geometry(NEMOTRON)


def test_newer_configs_of_the_same_models() -> None:
    flat = without(KIMI_LINEAR, "linear_attn_config") | {
        "layer_types": ["linear_attention"] * 20 + ["full_attention"] * 7,
        "linear_num_heads": 32,
        "linear_head_dim": 128,
        "linear_conv_kernel_dim": 4,
    }
    assert geometry(flat) == geometry(KIMI_LINEAR)
    listed = without(MINIMAX, "attn_type_list") | {
        "layer_types": ["linear_attention"] * 70 + ["full_attention"] * 10
    }
    assert geometry(listed) == geometry(MINIMAX)
    assert geometry(
        without(LFM2, "layer_types") | {"num_hidden_layers": 16, "full_attn_idxs": [2, 5, 8, 10, 12, 14]}
    ) == geometry(LFM2)
    assert geometry(GRANITE | {"mamba_d_head": "auto", "mamba_expand": 2}) == geometry(GRANITE)


@pytest.mark.parametrize("name", FAMILIES)
def test_tiny_families_fit_their_blocks(name: str) -> None:
    family = FAMILIES[name]
    size = geometry(family.config)
    assert size.checkpoint_blocks == family.checkpoint_blocks
    assert size.smallest_block_tokens <= family.block_size


def test_recurrent_states_fill_their_blocks() -> None:
    for family in FAMILIES.values():
        if family.mixer != "shortconv":
            assert geometry(family.config).smallest_block_tokens > 0.8 * family.block_size


def test_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"cannot size a model of type 'llama': known types are qwen3_next"):
        geometry({"model_type": "llama"})


BAD: list[tuple[Config, str]] = [
    ({}, "cannot size a model of type None"),
    ({"model_type": ["a"] * 1000}, "cannot size a model of type"),
    (QWEN3_NEXT | {"text_config": []}, r"text_config is \[\]: must be an object"),
    (QWEN3_NEXT | {"head_dim": "wide"}, "head_dim is 'wide': must be a whole number, 1 to"),
    (QWEN3_NEXT | {"head_dim": True}, "head_dim is True: must be a whole number"),
    (QWEN3_NEXT | {"head_dim": 10**400}, "head_dim is a huge number: must be a whole number"),
    (QWEN3_NEXT | {"linear_conv_kernel_dim": 0}, "linear_conv_kernel_dim is 0: must be"),
    (QWEN3_NEXT | {"full_attention_interval": 1}, "0 recurrent and 48 attention layers: not a hybrid"),
    (without(QWEN3_NEXT, "num_key_value_heads"), "num_key_value_heads is missing"),
    (GRANITE | {"layer_types": 7}, "layer_types is 7: must be a list"),
    (GRANITE | {"layer_types": ["mamba", {}]}, r"layer_types: \{\} is no kind of layer"),
    (GRANITE | {"layer_types": ["sliding_attention"]}, "'sliding_attention' is no kind of layer"),
    (FALCON | {"mamba_n_heads": 25}, "mamba_n_heads is 25: must divide the 3072 inner channels"),
    (MINIMAX | {"attn_type_list": [2]}, "attn_type_list: 2 is neither 0 nor 1"),
    (without(KIMI_LINEAR, "linear_attn_config"), "linear_attn_config is missing"),
    (JAMBA | {"num_hidden_layers": 4}, "4 recurrent and 0 attention layers"),
]


@pytest.mark.parametrize(("config", "reason"), BAD)
def test_configs_that_make_no_sense(config: Config, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as found:
        geometry(config)
    assert "\n" not in str(found.value)


@pytest.mark.slow  # importing vLLM takes ten seconds
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_states_have_the_shapes_vllm_gives_them(tp: int) -> None:
    utils = pytest.importorskip("vllm.model_executor.layers.mamba.mamba_utils")
    shapes = utils.MambaStateShapeCalculator
    expected = {
        "gdn": (QWEN3_NEXT, shapes.gated_delta_net_state_shape(tp, 16, 32, 128, 128, 4)),
        "kda": (GLM, shapes.kda_state_shape(tp, 64, 128)),
        "mamba2, groups": (NEMOTRON, shapes.mamba2_state_shape(tp, 8192, 8, 128, 64, 128, 4)),
        "mamba2, one group": (GRANITE, shapes.mamba2_state_shape(tp, 8192, 1, 128, 64, 128, 4)),
        "mamba1": (JAMBA, shapes.mamba1_state_shape(tp, 8192, 16, 4)),
        "conv": (LFM2, (*shapes.short_conv_state_shape(tp, 2048, 3), (0,))),
        "lightning": (MINIMAX, ((0,), *shapes.linear_attention_state_shape(64, tp, 128))),
    }
    for name, (config, (convolution, state)) in expected.items():
        size = geometry(config, tp)
        assert size.convolution_bytes == 2 * _elements(convolution), name
        assert size.recurrent_bytes == 4 * _elements(state), name


def _elements(shape: Any) -> int:
    product = 1
    for length in shape:
        product *= int(length)
    return product
