"""The contract of every chunked prefill kernel: what goes in, what comes out, what must hold bit for bit.

One recurrence over tokens t, a state S [V, K] a value head and sequence, decay exp(log_decay):

    S <- S * exp(log_decay[t])                     KDA: a factor for each key channel; GDN, Mamba-2: one a head
    S <- S + beta[t] * (v[t] - S k[t]) k[t]^T      KDA, GDN (the delta rule)
    S <- S + beta[t] * v[t] k[t]^T                 Mamba-2 (beta is dt, k is B, q is C)
    o[t] = scale * S q[t]

What a kernel promises:
- `output` and `final_state` have the same bits with and without an export;
- `checkpoint[n]`, exported at c, has the bits of the final state of a call truncated at c, and `output[:c]` those of
  that call's output;
- nothing after c influences `checkpoint[n]`, not even NaN.
A warm call from c equals the uninterrupted one bit for bit only where c lies on the kernel's tile grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch


class Recurrence(Enum):
    """The three families. They differ in the shape of the decay and in the delta rule."""

    KDA = "kda"
    GDN = "gdn"
    MAMBA2 = "mamba2"


@dataclass(frozen=True, eq=False)
class ChunkInputs:
    """One varlen prefill batch: N sequences, T tokens in all, packed one after another.

    q, k: [T, Hk, K], any float type; H is a multiple of Hk, and value head h reads key head h // (H // Hk).
    v: [T, H, V], the type of q and k.
    log_decay: float32, never positive; [T, H, K] for KDA, [T, H] otherwise.
    beta: [T, H], float32.
    initial_state: [N, H, V, K] float32, or None for zeros.
    cu_seqlens: [N + 1] int32, from 0 to T.
    export_offsets: [N] int32, tokens of this call after which to export; 0 exports nothing. None: no export at all.
    """

    recurrence: Recurrence
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    log_decay: torch.Tensor
    beta: torch.Tensor
    scale: float
    cu_seqlens: torch.Tensor
    initial_state: torch.Tensor | None = None
    export_offsets: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class ChunkOutputs:
    """output: [T, H, V], the type of v. final_state: [N, H, V, K] float32.

    checkpoint: [N, H, V, K] float32, or None without export_offsets. Rows whose offset is 0 are undefined.
    """

    output: torch.Tensor
    final_state: torch.Tensor
    checkpoint: torch.Tensor | None


def check_inputs(inputs: ChunkInputs) -> None:
    """Raises ValueError, naming the value and what it must be. Reads shapes and types only, never device memory."""
    tokens, heads, value_dim = _shape("v", inputs.v, 3)
    _, key_heads, key_dim = _shape("k", inputs.k, 3)
    sequences = inputs.cu_seqlens.numel() - 1
    if heads % key_heads:
        raise ValueError(f"v has {heads} heads: must be a multiple of the {key_heads} of k")
    decay = (tokens, heads, key_dim) if inputs.recurrence is Recurrence.KDA else (tokens, heads)
    state = (sequences, heads, value_dim, key_dim)
    _expect("q", inputs.q, (tokens, key_heads, key_dim), inputs.v.dtype)
    _expect("k", inputs.k, (tokens, key_heads, key_dim), inputs.v.dtype)
    _expect("log_decay", inputs.log_decay, decay, torch.float32)
    _expect("beta", inputs.beta, (tokens, heads), torch.float32)
    _expect("cu_seqlens", inputs.cu_seqlens, (sequences + 1,), torch.int32)
    if inputs.initial_state is not None:
        _expect("initial_state", inputs.initial_state, state, torch.float32)
    if inputs.export_offsets is not None:
        _expect("export_offsets", inputs.export_offsets, (sequences,), torch.int32)


def _shape(name: str, tensor: torch.Tensor, dims: int) -> tuple[int, ...]:
    if tensor.dim() != dims:
        raise ValueError(f"{name} has {tensor.dim()} dimensions: must have {dims}")
    return tuple(tensor.shape)


def _expect(name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}: must be {dtype} {shape}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} has strides {tensor.stride()}: must be contiguous")
