"""Small random kernel inputs, the calls derived from one (truncated, resumed, poisoned), and comparing bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from flashstate.kernels.base import ChunkInputs, Recurrence


def make_inputs(
    recurrence: Recurrence,
    lengths: Sequence[int] = (96,),
    heads: int = 2,
    key_heads: int = 1,
    key_dim: int = 32,
    value_dim: int = 32,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    offsets: Sequence[int] | None = None,
    initial: bool = True,
) -> ChunkInputs:
    """Values of the sizes a trained layer sees: unit keys, gates from almost none to about exp(-5) a token.

    lengths: tokens of each sequence. offsets: export offsets, one a sequence. initial: with initial states.
    """
    draw = torch.Generator().manual_seed(seed)
    tokens = sum(lengths)
    decay_shape = (tokens, heads, key_dim) if recurrence is Recurrence.KDA else (tokens, heads)
    q, k = (torch.randn(tokens, key_heads, key_dim, generator=draw) for _ in range(2))
    if recurrence is Recurrence.MAMBA2:
        k, q = k / 4, q / 4
        beta = torch.nn.functional.softplus(torch.randn(tokens, heads, generator=draw) - 2)
        log_decay = -beta * torch.linspace(1, 8, heads)
    else:
        q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
        beta = torch.rand(tokens, heads, generator=draw)
        log_decay = -5 * torch.rand(decay_shape, generator=draw) ** 8
    states = torch.randn(len(lengths), heads, value_dim, key_dim, generator=draw)
    return ChunkInputs(
        recurrence=recurrence,
        q=q.to(dtype),
        k=k.to(dtype),
        v=torch.randn(tokens, heads, value_dim, generator=draw).to(dtype),
        log_decay=log_decay.contiguous(),
        beta=beta,
        scale=1.0 if recurrence is Recurrence.MAMBA2 else key_dim**-0.5,
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).to(torch.int32),
        initial_state=states if initial else None,
        export_offsets=None if offsets is None else _offsets(offsets),
    )


def _offsets(offsets: Sequence[int]) -> torch.Tensor:
    return torch.tensor(list(offsets), dtype=torch.int32)


def with_offsets(inputs: ChunkInputs, offsets: Sequence[int] | None) -> ChunkInputs:
    """The same call with other export offsets, or with none."""
    return replace(inputs, export_offsets=None if offsets is None else _offsets(offsets))


def bounds(inputs: ChunkInputs, sequence: int) -> tuple[int, int]:
    """The first row of a sequence and the row after its last."""
    return int(inputs.cu_seqlens[sequence]), int(inputs.cu_seqlens[sequence + 1])


def truncated(inputs: ChunkInputs, sequence: int, at: int) -> ChunkInputs:
    """A call with the first `at` tokens of one sequence alone, from its initial state, without export."""
    begin, _ = bounds(inputs, sequence)
    initial = None if inputs.initial_state is None else inputs.initial_state[sequence : sequence + 1].clone()
    return _part(inputs, begin, begin + at, initial)


def resumed(inputs: ChunkInputs, sequence: int, at: int, state: torch.Tensor) -> ChunkInputs:
    """A call with the tokens of one sequence from `at` on, from `state` [H, V, K], without export."""
    begin, end = bounds(inputs, sequence)
    return _part(inputs, begin + at, end, state[None].clone())


def poisoned(inputs: ChunkInputs, sequence: int, at: int) -> ChunkInputs:
    """The same call, with NaN for every token of one sequence from `at` on."""
    begin, end = bounds(inputs, sequence)

    def poison(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.clone()
        tensor[begin + at : end] = float("nan")
        return tensor

    return replace(
        inputs,
        q=poison(inputs.q),
        k=poison(inputs.k),
        v=poison(inputs.v),
        log_decay=poison(inputs.log_decay),
        beta=poison(inputs.beta),
    )


def joined(calls: Sequence[ChunkInputs]) -> ChunkInputs:
    """One batch without export of several calls of one recurrence, in their order."""
    states = [call.initial_state for call in calls if call.initial_state is not None]
    lengths = torch.cat([call.cu_seqlens.diff() for call in calls])
    return replace(
        calls[0],
        q=torch.cat([call.q for call in calls]),
        k=torch.cat([call.k for call in calls]),
        v=torch.cat([call.v for call in calls]),
        log_decay=torch.cat([call.log_decay for call in calls]),
        beta=torch.cat([call.beta for call in calls]),
        cu_seqlens=torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).to(torch.int32),
        initial_state=torch.cat(states) if states else None,
        export_offsets=None,
    )


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two float tensors hold the same bits: -0 is not 0 here, and a NaN is itself."""
    as_integers = torch.int16 if one.element_size() == 2 else torch.int32
    return one.dtype == other.dtype and torch.equal(
        one.contiguous().view(as_integers), other.contiguous().view(as_integers)
    )


def _part(inputs: ChunkInputs, begin: int, end: int, initial: torch.Tensor | None) -> ChunkInputs:
    """One sequence, rows begin to end. Copies, so that each tensor starts where an allocation does."""
    return replace(
        inputs,
        q=inputs.q[begin:end].clone(),
        k=inputs.k[begin:end].clone(),
        v=inputs.v[begin:end].clone(),
        log_decay=inputs.log_decay[begin:end].clone(),
        beta=inputs.beta[begin:end].clone(),
        cu_seqlens=inputs.cu_seqlens.new_tensor([0, end - begin]),
        initial_state=initial,
        export_offsets=None,
    )
