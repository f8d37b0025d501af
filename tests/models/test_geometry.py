"""Sizes of published models, checked against figures worked out from their configs by hand."""

from __future__ import annotations

from typing import Any

import pytest

from flashstate.models.families import FAMILIES
from flashstate.models.geometry import geometry

MIB, KIB = 2**20, 2**10

PUBLISHED: dict[str, tuple[dict[str, Any], float, float]] = {
    # config, checkpoint in MiB, KV in KiB a token
    "Qwen3-Next-80B": (
        {
            "model_type": "qwen3_next",
            "num_hidden_layers": 48,
            "full_attention_interval": 4,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "num_key_value_heads": 2,
            "head_dim": 256,
        },
        74,
        24,
    ),
    "Nemotron 3 Super": (
        {
            "model_type": "nemotron_h",
            "hybrid_override_pattern": "M" * 40 + "*" * 8 + "E" * 40,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "ssm_state_size": 128,
            "n_groups": 8,
            "conv_kernel": 4,
            "num_key_value_heads": 2,
            "head_dim": 128,
        },
        162,
        8,
    ),
    "Granite-4.0-H-Small": (
        {
            "model_type": "granitemoehybrid",
            "layer_types": ["mamba"] * 36 + ["attention"] * 4,
            "mamba_n_heads": 128,
            "mamba_d_head": 64,
            "mamba_d_state": 128,
            "mamba_n_groups": 1,
            "mamba_d_conv": 4,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
        146,
        16,
    ),
    "Falcon-H1-7B": (
        {
            "model_type": "falcon_h1",
            "num_hidden_layers": 44,
            "mamba_d_ssm": 3072,
            "mamba_d_state": 256,
            "mamba_n_groups": 1,
            "mamba_d_conv": 4,
            "num_key_value_heads": 2,
            "head_dim": 128,
        },
        133,
        44,
    ),
    "LFM2-1.2B": (
        {
            "model_type": "lfm2",
            "layer_types": ["conv"] * 10 + ["full_attention"] * 6,
            "conv_L_cache": 3,
            "hidden_size": 2048,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
        },
        0.08,
        12,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str) -> None:
    config, checkpoint_mib, kv_kib = PUBLISHED[name]
    size = geometry(config)
    assert round(size.checkpoint_bytes / MIB, 2 if checkpoint_mib < 1 else 0) == checkpoint_mib
    assert size.kv_bytes_per_token / KIB == kv_kib


def test_qwen3_next_takes_three_blocks_a_checkpoint() -> None:
    assert geometry(PUBLISHED["Qwen3-Next-80B"][0]).checkpoint_blocks == 3


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
