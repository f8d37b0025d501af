"""The KDA layer of Kimi-Linear for vLLM on a CPU: projections, convolution, recurrence, gated norm.

After vLLM's `KimiGatedDeltaNetAttention` (tensor names, state layout), whose kernels need CUDA. The recurrence is
`flashstate.kernels.cpu`: it has no tile grid, so a state exported inside a chunk resumes bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
import vllm._custom_ops as ops
from torch import nn
from vllm.distributed import (
    divide,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    MergedColumnParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateDtypeCalculator, MambaStateShapeCalculator
from vllm.model_executor.layers.mamba.ops.cpu.causal_conv1d import causal_conv1d_fn_cpu
from vllm.model_executor.model_loader.weight_utils import sharded_weight_loader
from vllm.model_executor.utils import set_weight_attrs
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum

from flashstate.kernels.base import ChunkInputs, Recurrence
from flashstate.kernels.convolution import convolution_state_at
from flashstate.kernels.cpu import chunk_forward_in_pool
from flashstate.kernels.gates import kda_log_decay

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.transformers_utils.configs.kimi_linear import KimiLinearConfig

EXPORTS_KEY: Final = "flashstate_exports"
"""Key of the forward context's `additional_kwargs`: {live state block: (offset in this chunk, destination block)}."""

_VECTORS: Final = 64  # floats; no vector loop of torch's takes more at a time
_NORM_EPS: Final = 1e-6  # of the L2 norm of q and k, as in vLLM's and fla's KDA


@dataclass(frozen=True, eq=False)
class Exports:
    """States to export inside this step's chunks; both [N] int32, offset 0 exports nothing."""

    offsets: torch.Tensor
    destinations: torch.Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """The N sequences of one step, decodes first: a decode is a chunk of one token."""

    tokens: int
    cu_seqlens: torch.Tensor  # [N + 1] int32
    state_blocks: torch.Tensor  # [N] int32
    has_initial_state: torch.Tensor  # [N] bool


def exports_of(state_blocks: torch.Tensor) -> Exports | None:
    """What this forward pass exports from the sequences whose live states are in `state_blocks` ([N]).

    None where it exports nothing of them.
    """
    wanted: Mapping[int, tuple[int, int]] = get_forward_context().additional_kwargs.get(EXPORTS_KEY, {})
    if not wanted:
        return None
    rows = [wanted.get(block, (0, 0)) for block in state_blocks.tolist()]
    if not any(offset for offset, _ in rows):
        return None
    offsets, destinations = torch.tensor(rows, dtype=torch.int32).unbind(1)
    return Exports(offsets.contiguous(), destinations.contiguous())


def batch_of(layer: str) -> Batch | None:
    """This step's sequences as the layer of that name sees them; None in a profiling run, which has none."""
    every = get_forward_context().attn_metadata
    metadata = every.get(layer) if isinstance(every, dict) else None
    if metadata is None or not metadata.num_actual_tokens:
        return None
    sequences = metadata.num_decodes + metadata.num_prefills
    initial = metadata.has_initial_state
    if initial is None:  # decodes alone
        initial = torch.ones(sequences, dtype=torch.bool)
    return Batch(
        tokens=metadata.num_actual_tokens,
        cu_seqlens=metadata.non_spec_query_start_loc[: sequences + 1],
        state_blocks=metadata.non_spec_state_indices_tensor[:sequences].contiguous(),
        has_initial_state=initial[:sequences],
    )


class GatedNorm(nn.Module):
    """RMS norm over the last dimension, then a factor of sigmoid(gate); computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """x, gate: [..., size]. Returns the type of gate."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return (wide * scale * self.weight.float() * gate.float().sigmoid()).to(gate.dtype)


class KimiDeltaAttention(nn.Module, MambaBase):
    """One KDA layer. Parameters have the names of the published checkpoints (q, k, v and their convolutions packed)."""

    def __init__(self, config: KimiLinearConfig, vllm_config: VllmConfig, prefix: str) -> None:
        super().__init__()
        linear = config.linear_attn_config
        self.prefix = prefix
        self.model_config, self.cache_config = vllm_config.model_config, vllm_config.cache_config
        self.head_dim: int = linear["head_dim"]
        self.total_heads: int = linear["num_heads"]
        self.taps: int = linear["short_conv_kernel_size"]
        self.tp_size: int = get_tensor_model_parallel_world_size()
        self.heads: int = divide(self.total_heads, self.tp_size)
        self._add_projections(config, vllm_config.quant_config)
        self._add_convolution()
        self.A_log = nn.Parameter(torch.empty(self.heads, dtype=torch.float32))
        self.dt_bias = nn.Parameter(torch.empty(self.heads * self.head_dim, dtype=torch.float32))
        set_weight_attrs(self.A_log, {"weight_loader": _load_a_log})
        set_weight_attrs(self.dt_bias, {"weight_loader": sharded_weight_loader(0)})
        self.o_norm = GatedNorm(self.head_dim, config.rms_norm_eps)
        # vLLM finds the layers that own cache blocks here.
        layers = vllm_config.compilation_config.static_forward_context
        if prefix in layers:
            raise ValueError(f"two layers are named {prefix}: layer names must differ")
        layers[prefix] = self

    def _add_projections(self, config: KimiLinearConfig, quantization: Any) -> None:
        hidden, inner = config.hidden_size, self.total_heads * self.head_dim

        def options(name: str) -> dict[str, Any]:
            return {"bias": False, "quant_config": quantization, "prefix": f"{self.prefix}.{name}"}

        self.qkv_proj = MergedColumnParallelLinear(hidden, [inner] * 3, **options("qkv_proj"))
        self.b_proj = ColumnParallelLinear(hidden, self.total_heads, **options("b_proj"))
        self.f_a_proj = ReplicatedLinear(hidden, self.head_dim, **options("f_a_proj"))
        self.f_b_proj = ColumnParallelLinear(self.head_dim, inner, **options("f_b_proj"))
        self.g_a_proj = ReplicatedLinear(hidden, self.head_dim, **options("g_a_proj"))
        self.g_b_proj = ColumnParallelLinear(self.head_dim, inner, **options("g_b_proj"))
        self.o_proj = RowParallelLinear(inner, hidden, **options("o_proj"))

    def _add_convolution(self) -> None:
        # A linear layer in form only: vLLM packs its weight for the C++ convolution where the CPU has one.
        inner = self.total_heads * self.head_dim
        self.conv1d = ColumnParallelLinear(self.taps, 3 * inner, bias=False, prefix=f"{self.prefix}.conv1d")
        weight = self.conv1d.weight
        weight.data = weight.data.unsqueeze(1)
        del weight.weight_loader
        set_weight_attrs(weight, {"weight_loader": _load_convolution})

    @property
    def mamba_type(self) -> MambaAttentionBackendEnum:
        # The backend only makes the step's metadata, and KDA needs what GDN needs.
        return MambaAttentionBackendEnum.GDN_ATTN

    def get_state_dtype(self) -> tuple[torch.dtype, torch.dtype]:
        """Of the convolution's state and of the recurrent state (float32)."""
        return state_dtypes(self.model_config, self.cache_config)

    def get_state_shape(self) -> tuple[tuple[int, int], tuple[int, int, int]]:
        """[taps - 1, 3 * heads * head_dim] and [heads, head_dim (V), head_dim (K)] on this rank."""
        shapes: tuple[tuple[int, int], tuple[int, int, int]] = MambaStateShapeCalculator.kda_state_shape(
            self.tp_size, self.total_heads, self.head_dim, conv_kernel_size=self.taps
        )
        return shapes

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden: [T, hidden size]. Returns the same shape and type."""
        gate = self.g_b_proj(self.g_a_proj(hidden)[0])[0]
        mixed = gate.new_zeros(gate.shape).unflatten(1, (self.heads, self.head_dim))
        batch = batch_of(self.prefix)
        if batch is not None:
            mixed[: batch.tokens] = self._mix(hidden[: batch.tokens], batch)
        normed = self.o_norm(mixed, gate.view_as(mixed))
        out: torch.Tensor = self.o_proj(normed.flatten(1))[0]
        return out

    def _mix(self, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """hidden: [T, hidden size]. Returns [T, heads, head_dim]; the states in the pool move on by the batch."""
        exports = exports_of(batch.state_blocks)
        qkv = self._convolve(self.qkv_proj(hidden)[0], batch, exports)
        q, k, v = qkv.unflatten(1, (3, self.heads, self.head_dim)).unbind(1)
        raw_gate = self.f_b_proj(self.f_a_proj(hidden)[0])[0].unflatten(1, (self.heads, self.head_dim))
        inputs = ChunkInputs(
            Recurrence.KDA,
            q=_l2_normed(q),
            k=_l2_normed(k),
            v=v.contiguous(),
            log_decay=kda_log_decay(raw_gate, self.A_log, self.dt_bias),
            beta=row_sigmoid(self.b_proj(hidden)[0]),
            scale=self.head_dim**-0.5,
            cu_seqlens=batch.cu_seqlens,
            export_offsets=None if exports is None else exports.offsets,
        )
        return chunk_forward_in_pool(
            inputs,
            pool=self.kv_cache[1],
            slots=batch.state_blocks,
            has_initial=batch.has_initial_state,
            export_slots=None if exports is None else exports.destinations,
        )

    def _convolve(self, qkv: torch.Tensor, batch: Batch, exports: Exports | None) -> torch.Tensor:
        """qkv: [T, 3 * heads * head_dim], raw. Returns its causal convolution and SiLU; the states move on."""
        states = self.kv_cache[0]
        if exports is not None:
            export_convolution(states, qkv, batch, exports)
        # vLLM stashes the plain weight where it packed the other for its C++ convolution.
        packed = getattr(self.conv1d, "_cpu_unpacked_conv_weight", None) is not None
        if packed:
            mixed = ops.causal_conv1d_fwd_cpu(
                x=qkv.transpose(0, 1),
                weight=self.conv1d.weight,
                bias=None,
                conv_states=states.transpose(1, 2),
                query_start_loc=batch.cu_seqlens,
                cache_indices=batch.state_blocks,
                has_initial_state=batch.has_initial_state,
                silu_activation=True,
                is_weight_packed=True,
            )
        else:
            mixed = causal_conv1d_fn_cpu(
                x=qkv.transpose(0, 1),
                weight=self.conv1d.weight.squeeze(1),
                bias=None,
                conv_states=states.transpose(1, 2),
                query_start_loc=batch.cu_seqlens,
                cache_indices=batch.state_blocks,
                has_initial_state=batch.has_initial_state,
            )
        out: torch.Tensor = mixed.transpose(0, 1)
        return out


def export_convolution(states: torch.Tensor, inputs: torch.Tensor, batch: Batch, exports: Exports) -> None:
    """Writes the convolution's states at the exports' offsets; to be called before the convolution moves them on.

    states: [blocks, taps - 1, C], the pool. inputs: [T, C], raw. Rows whose offset is 0 are left alone.
    """
    bounds, blocks = batch.cu_seqlens.tolist(), batch.state_blocks.tolist()
    for n, (offset, destination) in enumerate(
        zip(exports.offsets.tolist(), exports.destinations.tolist(), strict=True)
    ):
        if not offset:
            continue
        initial = states[blocks[n]]
        if not batch.has_initial_state[n]:
            initial = torch.zeros_like(initial)
        states[destination] = convolution_state_at(initial, inputs[bounds[n] : bounds[n + 1]], offset)


def state_dtypes(model_config: Any, cache_config: Any) -> tuple[torch.dtype, torch.dtype]:
    """Types of the convolution's state and of the recurrent state, which is always float32."""
    dtypes: tuple[torch.dtype, torch.dtype] = MambaStateDtypeCalculator.kda_state_dtype(
        model_config.dtype, cache_config.mamba_cache_dtype
    )
    return dtypes


def row_sigmoid(x: torch.Tensor) -> torch.Tensor:
    """x: [T, n]. Returns float32, each row the same bits in every batch.

    Torch computes the elements after the last full vectors of a tensor by other code, which rounds otherwise. Whole
    vectors a row keep a token's bits from depending on its place in the batch.
    """
    padded = nn.functional.pad(x.float(), (0, -x.shape[1] % _VECTORS))
    return padded.sigmoid()[:, : x.shape[1]].contiguous()


def _l2_normed(x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().sum(dim=-1, keepdim=True) + _NORM_EPS)).to(x.dtype)


def _load_a_log(parameter: torch.Tensor, loaded: torch.Tensor) -> None:
    # Published as [1, 1, heads, 1].
    heads = parameter.shape[0]
    parameter.data.copy_(loaded.flatten().narrow(0, get_tensor_model_parallel_rank() * heads, heads))


def _load_convolution(parameter: torch.Tensor, loaded: torch.Tensor, shard: int) -> None:
    """loaded: [channels, 1, taps], or [channels, taps], of q (shard 0), k (1) or v (2)."""
    channels = parameter.shape[0] // 3
    ours = loaded.narrow(0, get_tensor_model_parallel_rank() * channels, channels)
    parameter.data[shard * channels : (shard + 1) * channels].copy_(ours.reshape(channels, 1, -1))
