"""Kimi-Linear for vLLM on a CPU: KDA layers, attention over decompressed keys and values, MLP or experts.

vLLM's own class needs CUDA-only kernels, so on a CPU stock vLLM cannot run this model at all. Ours loads the published
tensor names. Attention is MLA computed as ordinary multi-head attention (as vLLM's `DeepseekV2Attention` does): its KV
goes through vLLM's ordinary blocks, and takes more room than MLA's latent would.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.fused_moe import FusedMoEFactory, fused_moe_make_expert_params_mapping
from vllm.model_executor.layers.fused_moe.router.gate_linear import GateLinear
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    MergedColumnParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.mamba.mamba_utils import (
    MambaStateCopyFunc,
    MambaStateCopyFuncCalculator,
    MambaStateShapeCalculator,
    is_conv_state_dim_first,
)
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.model_executor.model_loader.weight_utils import default_weight_loader
from vllm.model_executor.models.interfaces import HasInnerState, IsHybrid
from vllm.model_executor.models.utils import AutoWeightsLoader, extract_layer_index, maybe_prefix

from flashstate.models.kda import KimiDeltaAttention, state_dtypes

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.transformers_utils.configs.kimi_linear import KimiLinearConfig

_STACKED: Final = (
    # published, ours, part
    (".q_proj", ".qkv_proj", 0),
    (".k_proj", ".qkv_proj", 1),
    (".v_proj", ".qkv_proj", 2),
    (".q_conv1d", ".conv1d", 0),
    (".k_conv1d", ".conv1d", 1),
    (".v_conv1d", ".conv1d", 2),
    (".gate_proj", ".gate_up_proj", 0),
    (".up_proj", ".gate_up_proj", 1),
)


def check_supported(config: KimiLinearConfig, uses_mla: bool) -> None:
    """Raises ValueError, in one line, for a model or a setting that this class would compute wrongly.

    uses_mla: whether vLLM sizes the KV cache for MLA's latent. Kimi-K3 has most of the fields refused here.
    """
    linear = config.linear_attn_config or {}
    checks = (
        (not linear.get("kda_layers"), "linear_attn_config has no kda_layers: must name some"),
        (linear.get("gate_lower_bound") is not None, "linear_attn_config.gate_lower_bound: must be absent"),
        (linear.get("use_full_rank_gate"), "linear_attn_config.use_full_rank_gate: must be false"),
        (not config.mla_use_nope, f"mla_use_nope {config.mla_use_nope}: must be true"),
        (config.q_lora_rank is not None, f"q_lora_rank {config.q_lora_rank}: must be null"),
        (config.mla_use_output_gate, "mla_use_output_gate true: must be false"),
        (
            config.attn_res_block_size is not None,
            f"attn_res_block_size {config.attn_res_block_size}: must be null",
        ),
        (
            config.routed_expert_hidden_size is not None,
            f"routed_expert_hidden_size {config.routed_expert_hidden_size}: must be null",
        ),
        (config.hidden_act != "silu", f"hidden_act {config.hidden_act}: must be silu"),
        (config.tie_word_embeddings, "tie_word_embeddings true: must be false"),
        (
            config.num_key_value_heads != config.num_attention_heads,
            f"num_key_value_heads {config.num_key_value_heads}: must be the {config.num_attention_heads} "
            "of num_attention_heads",
        ),
        (uses_mla, "VLLM_MLA_DISABLE=0: must be 1, or unset"),
        (is_conv_state_dim_first(), "VLLM_SSM_CONV_STATE_LAYOUT=DS: must be SD, or unset"),
    )
    reasons = [reason for refused, reason in checks if refused]
    if reasons:
        raise ValueError(f"flashstate cannot serve this Kimi-Linear model on a CPU: {'; '.join(reasons)}")


class KimiMLP(nn.Module):
    """SwiGLU."""

    def __init__(
        self, hidden: int, inner: int, quantization: Any, prefix: str, *, reduce_results: bool = True
    ) -> None:
        super().__init__()
        self.gate_up_proj = MergedColumnParallelLinear(
            hidden, [inner] * 2, bias=False, quant_config=quantization, prefix=f"{prefix}.gate_up_proj"
        )
        self.down_proj = RowParallelLinear(
            inner,
            hidden,
            bias=False,
            quant_config=quantization,
            reduce_results=reduce_results,
            prefix=f"{prefix}.down_proj",
        )
        self.activation = SiluAndMul()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, hidden size] to the same."""
        out: torch.Tensor = self.down_proj(self.activation(self.gate_up_proj(hidden)[0]))[0]
        return out


class KimiMoE(nn.Module):
    """Experts chosen by a sigmoid router with a correction bias, beside shared experts that always run."""

    def __init__(self, config: KimiLinearConfig, quantization: Any, prefix: str) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.moe_intermediate_size
        # Scores are taken in float32 from here on: close calls between experts must not fall by their rounding.
        self.gate = GateLinear(
            hidden, config.num_experts, bias=False, out_dtype=torch.float32, prefix=f"{prefix}.gate"
        )
        self.gate.e_score_correction_bias = nn.Parameter(torch.empty(config.num_experts, dtype=torch.float32))
        self.shared_experts = None
        if config.num_shared_experts:
            self.shared_experts = KimiMLP(
                hidden,
                inner * config.num_shared_experts,
                quantization,
                f"{prefix}.shared_experts",
                reduce_results=False,
            )
        self.experts = FusedMoEFactory(
            num_experts=config.num_experts,
            top_k=config.num_experts_per_token,
            hidden_size=hidden,
            intermediate_size=inner,
            activation=config.hidden_act,
            renormalize=config.moe_renormalize,
            quant_config=quantization,
            use_grouped_topk=config.use_grouped_topk,
            num_expert_group=config.num_expert_group,
            topk_group=config.topk_group,
            scoring_func=config.moe_router_activation_func,
            e_score_correction_bias=self.gate.e_score_correction_bias,
            routed_scaling_factor=config.routed_scaling_factor,
            shared_experts=self.shared_experts,
            prefix=f"{prefix}.experts",
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, hidden size] to the same."""
        out: torch.Tensor = self.experts(hidden_states=hidden, router_logits=self.gate(hidden)[0])
        return out


class KimiAttention(nn.Module):
    """MLA without rotary embedding, computed as multi-head attention over decompressed keys and values."""

    def __init__(self, config: KimiLinearConfig, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        heads, hidden = config.num_attention_heads, config.hidden_size
        self.nope, self.rope, self.value_dim = (
            config.qk_nope_head_dim,
            config.qk_rope_head_dim,
            config.v_head_dim,
        )
        self.head_dim, self.rank = self.nope + self.rope, config.kv_lora_rank

        def options(name: str) -> dict[str, Any]:
            return {"bias": False, "quant_config": vllm_config.quant_config, "prefix": f"{prefix}.{name}"}

        self.q_proj = ColumnParallelLinear(hidden, heads * self.head_dim, **options("q_proj"))
        self.kv_a_proj_with_mqa = ReplicatedLinear(
            hidden, self.rank + self.rope, **options("kv_a_proj_with_mqa")
        )
        self.kv_a_layernorm = RMSNorm(self.rank, eps=config.rms_norm_eps)
        self.kv_b_proj = ColumnParallelLinear(
            self.rank, heads * (self.nope + self.value_dim), **options("kv_b_proj")
        )
        self.o_proj = RowParallelLinear(heads * self.value_dim, hidden, **options("o_proj"))
        self.heads = heads // self.q_proj.tp_size
        self.attn = Attention(
            self.heads,
            self.head_dim,
            self.head_dim**-0.5,
            num_kv_heads=self.heads,
            cache_config=vllm_config.cache_config,
            quant_config=vllm_config.quant_config,
            prefix=f"{prefix}.attn",
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, hidden size] to the same."""
        q = self.q_proj(hidden)[0]
        latent, k_shared = self.kv_a_proj_with_mqa(hidden)[0].split([self.rank, self.rope], dim=-1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent.contiguous()))[0].unflatten(1, (self.heads, -1))
        k, v = kv.split([self.nope, self.value_dim], dim=-1)
        k = torch.cat([k, k_shared[:, None].expand(-1, self.heads, -1)], dim=-1)
        # vLLM's attention has one head size for keys and values: pad the values, and drop the padding after.
        v = nn.functional.pad(v, (0, self.head_dim - self.value_dim))
        mixed = self.attn(q, k.flatten(1), v.flatten(1)).unflatten(1, (self.heads, self.head_dim))
        out: torch.Tensor = self.o_proj(mixed[..., : self.value_dim].flatten(1))[0]
        return out


class KimiDecoderLayer(nn.Module):
    """One mixer and one MLP or mixture of experts, each after a norm and beside the residual."""

    def __init__(self, config: KimiLinearConfig, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        index, quantization = extract_layer_index(prefix), vllm_config.quant_config
        mixer = KimiDeltaAttention if config.is_kda_layer(index) else KimiAttention
        self.self_attn = mixer(config, vllm_config, f"{prefix}.self_attn")
        has_experts = config.is_moe and index >= config.first_k_dense_replace
        if has_experts and index % config.moe_layer_freq == 0:
            self.block_sparse_moe = KimiMoE(config, quantization, f"{prefix}.block_sparse_moe")
        else:
            self.mlp = KimiMLP(config.hidden_size, config.intermediate_size, quantization, f"{prefix}.mlp")
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self, hidden: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[T, hidden size]: the last branch's output and the sum of all before it, to the same."""
        if residual is None:
            residual, hidden = hidden, self.input_layernorm(hidden)
        else:
            hidden, residual = self.input_layernorm(hidden, residual)
        hidden, residual = self.post_attention_layernorm(self.self_attn(hidden), residual)
        feed_forward = self.block_sparse_moe if hasattr(self, "block_sparse_moe") else self.mlp
        return feed_forward(hidden), residual


class KimiLinearModel(nn.Module):
    """Embedding, layers and last norm."""

    def __init__(self, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        self.config: KimiLinearConfig = vllm_config.model_config.hf_config
        self.embed_tokens = VocabParallelEmbedding(
            self.config.vocab_size, self.config.hidden_size, prefix=f"{prefix}.embed_tokens"
        )
        self.layers = nn.ModuleList(
            KimiDecoderLayer(self.config, vllm_config, f"{prefix}.layers.{index}")
            for index in range(self.config.num_hidden_layers)
        )
        self.norm = RMSNorm(self.config.hidden_size, eps=self.config.rms_norm_eps)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Embedded tokens, [T, hidden size], to what the head reads."""
        residual = None
        for layer in self.layers:
            hidden, residual = layer(hidden, residual)
        out: torch.Tensor = self.norm(hidden, residual)[0]
        return out

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Loads published tensors by name. Returns the names of the parameters that were given something."""
        parameters = dict(self.named_parameters())
        experts = []
        if self.config.is_moe:
            experts = fused_moe_make_expert_params_mapping(self, "w1", "w2", "w3", self.config.num_experts)
        return {_load(parameters, experts, name, tensor) for name, tensor in weights}


def _load(
    parameters: dict[str, nn.Parameter],
    experts: list[tuple[str, str, int, str]],
    name: str,
    tensor: torch.Tensor,
) -> str:
    for published, ours, part in _STACKED:
        # Attention layers have a q_proj of their own, so only where the packed one exists.
        packed = name.replace(published, ours)
        if published in name and packed in parameters:
            parameters[packed].weight_loader(parameters[packed], tensor, part)
            return packed
    for ours, published, expert, shard in experts:
        if published in name:
            fused = name.replace(published, ours)
            parameters[fused].weight_loader(
                parameters[fused], tensor, fused, expert_id=expert, shard_id=shard
            )
            return fused
    if name not in parameters:
        raise ValueError(
            f"the checkpoint's tensor {name} has no place in this model: is its config.json another's?"
        )
    getattr(parameters[name], "weight_loader", default_weight_loader)(parameters[name], tensor)
    return name


class KimiLinearForCausalLM(nn.Module, HasInnerState, IsHybrid):
    """What vLLM's model registry holds under this architecture while FlashState is on, on a CPU."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        self.config: KimiLinearConfig = vllm_config.model_config.hf_config
        check_supported(self.config, vllm_config.model_config.use_mla)
        self.model = KimiLinearModel(vllm_config, maybe_prefix(prefix, "model"))
        self.lm_head = ParallelLMHead(
            self.config.vocab_size,
            self.config.hidden_size,
            quant_config=vllm_config.quant_config,
            prefix=maybe_prefix(prefix, "lm_head"),
        )
        self.logits_processor = LogitsProcessor(self.config.vocab_size)

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """[T] token ids to [T, hidden size]."""
        out: torch.Tensor = self.model.embed_tokens(input_ids)
        return out

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,  # unused: no layer knows of positions
        intermediate_tensors: object = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[T] token ids, or their embeddings, to [T, hidden size]."""
        hidden = self.embed_input_ids(input_ids) if inputs_embeds is None else inputs_embeds
        out: torch.Tensor = self.model(hidden)
        return out

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor | None:
        """[T, hidden size] to [T, vocabulary]."""
        out: torch.Tensor | None = self.logits_processor(self.lm_head, hidden)
        return out

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Loads published tensors by name. Returns the names of the parameters that were given something."""
        loaded: set[str] = AutoWeightsLoader(self).load_weights(weights)
        return loaded

    @classmethod
    def get_mamba_state_dtype_from_config(cls, vllm_config: VllmConfig) -> tuple[torch.dtype, torch.dtype]:
        """As the KDA layer's `get_state_dtype`; vLLM sizes blocks by it before a layer exists."""
        return state_dtypes(vllm_config.model_config, vllm_config.cache_config)

    @classmethod
    def get_mamba_state_shape_from_config(
        cls, vllm_config: VllmConfig
    ) -> tuple[tuple[int, int], tuple[int, int, int]]:
        """As the KDA layer's `get_state_shape`."""
        linear = vllm_config.model_config.hf_config.linear_attn_config
        shapes: tuple[tuple[int, int], tuple[int, int, int]] = MambaStateShapeCalculator.kda_state_shape(
            vllm_config.parallel_config.tensor_parallel_size,
            linear["num_heads"],
            linear["head_dim"],
            conv_kernel_size=linear["short_conv_kernel_size"],
        )
        return shapes

    @classmethod
    def get_mamba_state_copy_func(cls) -> tuple[MambaStateCopyFunc, MambaStateCopyFunc]:
        """How vLLM copies the convolution's state and the recurrent state from block to block in mode align."""
        funcs: tuple[MambaStateCopyFunc, MambaStateCopyFunc] = (
            MambaStateCopyFuncCalculator.kda_state_copy_func()
        )
        return funcs
