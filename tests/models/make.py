"""Configs with the public geometry of known models: only the fields that a size depends on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Config = dict[str, Any]

QWEN3_NEXT: Config = {
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
}
QWEN35: Config = {
    "model_type": "qwen3_5_moe",
    "text_config": {
        **QWEN3_NEXT,
        "model_type": "qwen3_5_moe_text",
        "num_hidden_layers": 60,
        "linear_num_value_heads": 64,
        "num_attention_heads": 32,
    },
    "vision_config": {"model_type": "qwen3_5_moe_vision"},
}
GLM: Config = {
    "model_type": "glm5_next",
    "text_config": {
        "model_type": "glm5_next_text",
        "num_hidden_layers": 45,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "linear_num_heads": 64,
        "linear_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 0,
        "index_topk": 2048,
        "index_head_dim": 128,
        "index_kpool": 16,
    },
}
KIMI_LINEAR: Config = {
    "model_type": "kimi_linear",
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [n for n in range(1, 27) if n % 4],
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
}
KIMI_K3: Config = {
    "model_type": "kimi_k3",
    "text_config": {
        **KIMI_LINEAR,
        "num_attention_heads": 96,
        "linear_attn_config": {
            "full_attn_layers": list(range(70, 94)),
            "kda_layers": list(range(1, 70)),
            "num_heads": 96,
            "head_dim": 128,
            "short_conv_kernel_size": 4,
        },
    },
}
NEMOTRON: Config = {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "M" * 40 + "*" * 8 + "E" * 40,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
}
GRANITE: Config = {
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
}
FALCON: Config = {
    "model_type": "falcon_h1",
    "num_hidden_layers": 44,
    "mamba_d_ssm": 3072,
    "mamba_n_heads": 24,
    "mamba_d_state": 256,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
}
JAMBA: Config = {
    "model_type": "jamba",
    "num_hidden_layers": 32,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "mamba_expand": 2,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
LFM2: Config = {
    "model_type": "lfm2",
    "layer_types": ["conv"] * 10 + ["full_attention"] * 6,
    "conv_L_cache": 3,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
MINIMAX: Config = {
    "model_type": "minimax_text_01",
    "attn_type_list": ([0] * 7 + [1]) * 10,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
}


def without(config: Config, name: str) -> Config:
    return {key: value for key, value in config.items() if key != name}


def write_config(folder: Path, config: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path
