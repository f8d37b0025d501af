"""What the kernels promise bit for bit, and their error against float64, checked on the device at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from tests.kernels.make import bounds, joined, make_inputs, poisoned, resumed, same_bits, truncated

from flashstate.kernels.base import ChunkInputs, ChunkOutputs, Recurrence
from flashstate.kernels.reference import reference
from flashstate.kernels.triton import chunk_forward, default_tiles
from flashstate.kernels.triton.build import Layer

# Of the largest value of a result. In float32 on a GPU: three tf32 products in place of one.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.02}


@dataclass(frozen=True)
class Check:
    """One promise, on one kernel. cases: offsets tried; failed: those that broke it. error: the largest, relative."""

    recurrence: str
    kind: str
    promise: str
    cases: int
    failed: tuple[int, ...]
    error: float | None = None


def on_device(inputs: ChunkInputs, device: torch.device) -> ChunkInputs:
    """The same inputs, each tensor on `device`."""
    moved = {name: x.to(device) for name, x in vars(inputs).items() if isinstance(x, torch.Tensor)}
    return replace(inputs, **moved)


def inputs_of(
    layer: Layer,
    lengths: list[int],
    kind: torch.dtype,
    device: torch.device,
    offsets: list[int] | None,
    seed: int = 0,
) -> ChunkInputs:
    """Random inputs of a layer's shape, on `device`."""
    inputs = make_inputs(
        layer.recurrence,
        lengths,
        heads=layer.heads,
        key_heads=layer.key_heads,
        key_dim=layer.key_dim,
        value_dim=layer.value_dim,
        dtype=kind,
        seed=seed,
        offsets=offsets,
    )
    return on_device(inputs, device)


def checks(layer: Layer, kind: torch.dtype, device: torch.device, offsets: list[int]) -> Iterator[Check]:
    """Every promise on one batch: a sequence an offset, some ending at it, some long after."""
    lengths = [at + (0, 1, 37)[n % 3] for n, at in enumerate(offsets)]
    inputs = inputs_of(layer, lengths, kind, device, offsets)
    out = chunk_forward(inputs)
    off = chunk_forward(replace(inputs, export_offsets=None))
    short = chunk_forward(joined([truncated(inputs, n, at) for n, at in enumerate(offsets)]))

    def result(promise: str, held: list[bool], error: float | None = None) -> Check:
        failed = tuple(at for at, good in zip(offsets, held, strict=True) if not good)
        return Check(
            layer.recurrence.value, str(kind).removeprefix("torch."), promise, len(held), failed, error
        )

    yield result("output and final state as without export", _as_without(inputs, out, off))
    yield result("checkpoint and output as truncated", _as_truncated(inputs, out, short, offsets))
    yield result("NaN after the offset changes nothing", _unpoisoned(inputs, out, offsets))
    yield result("again: the same bits", _as_without(inputs, out, chunk_forward(inputs)))
    yield _warm(layer, kind, device)
    yield _accuracy(layer, kind, device)


def _as_without(inputs: ChunkInputs, out: ChunkOutputs, off: ChunkOutputs) -> list[bool]:
    held = []
    for n in range(len(inputs.cu_seqlens) - 1):
        begin, end = bounds(inputs, n)
        same = same_bits(out.output[begin:end], off.output[begin:end])
        held.append(same and same_bits(out.final_state[n], off.final_state[n]))
    return held


def _as_truncated(
    inputs: ChunkInputs, out: ChunkOutputs, short: ChunkOutputs, offsets: list[int]
) -> list[bool]:
    held, row = [], 0
    for n, at in enumerate(offsets):
        begin, _ = bounds(inputs, n)
        same = same_bits(out.output[begin : begin + at], short.output[row : row + at])
        held.append(same and same_bits(_checkpoint(out)[n], short.final_state[n]))
        row += at
    return held


def _unpoisoned(inputs: ChunkInputs, out: ChunkOutputs, offsets: list[int]) -> list[bool]:
    dirty = inputs
    for n, at in enumerate(offsets):
        dirty = poisoned(dirty, n, at)
    nan = chunk_forward(dirty)
    held = []
    for n, at in enumerate(offsets):
        begin, _ = bounds(inputs, n)
        same = same_bits(out.output[begin : begin + at], nan.output[begin : begin + at])
        held.append(same and same_bits(_checkpoint(out)[n], _checkpoint(nan)[n]))
    return held


def _warm(layer: Layer, kind: torch.dtype, device: torch.device) -> Check:
    """From a checkpoint on the tile grid the rest of the call has the bits of the whole one."""
    at = default_tiles(layer.recurrence).tokens
    inputs = inputs_of(layer, [2 * at + 5], kind, device, [at])
    whole = chunk_forward(inputs)
    warm = chunk_forward(resumed(inputs, 0, at, _checkpoint(whole)[0]))
    same = same_bits(warm.output, whole.output[at:]) and same_bits(warm.final_state, whole.final_state)
    name = str(kind).removeprefix("torch.")
    return Check(
        layer.recurrence.value, name, "warm from the grid as uninterrupted", 1, () if same else (at,)
    )


def _accuracy(layer: Layer, kind: torch.dtype, device: torch.device) -> Check:
    tokens = 2 * default_tiles(layer.recurrence).tokens + 5
    at = tokens // 2
    inputs = inputs_of(layer, [tokens], kind, device, [at])
    out, exact = chunk_forward(inputs), reference(inputs)
    pairs = (
        (out.output, exact.output),
        (out.final_state, exact.final_state),
        (_checkpoint(out), _checkpoint(exact)),
    )
    error = max(float((got - want).abs().max() / want.abs().max()) for got, want in pairs)
    name, limit = str(kind).removeprefix("torch."), TOLERANCE[kind]
    failed = () if error <= limit else (at,)
    return Check(layer.recurrence.value, name, f"error against float64 within {limit:g}", 1, failed, error)


def _checkpoint(out: ChunkOutputs) -> torch.Tensor:
    if out.checkpoint is None:
        raise ValueError("the call exported nothing")
    return out.checkpoint


def tiny(recurrence: Recurrence) -> Layer:
    """A layer small enough for Triton's interpreter."""
    return Layer(recurrence, heads=1, key_heads=1, key_dim=16, value_dim=32)
