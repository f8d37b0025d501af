"""The Triton kernels in Triton's interpreter, on the CPU. `test_triton.py` runs this file.

Triton reads TRITON_INTERPRET once, when it is imported, so these tests have a process of their own.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashstate.kernels.base import ChunkInputs, ChunkOutputs, Recurrence
from flashstate.kernels.reference import reference
from flashstate.kernels.triton import ChunkTiles, chunk_forward, default_tiles
from tests.kernels.make import (
    bounds,
    joined,
    make_inputs,
    poisoned,
    resumed,
    same_bits,
    truncated,
    with_offsets,
)

EACH = pytest.mark.parametrize("recurrence", list(Recurrence))
SMALL = ChunkTiles(tokens=16, values=16)
# Key dims of 32 and 64 in two and four parts, as float32 has 64 and 128 by default.
IN_PARTS = ChunkTiles(tokens=16, values=16, keys=16)

# Of the largest value of a result. Sums in bf16 products lose 2^-9 a factor, whatever the kernel.
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 0.02}


def assert_same_bits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert same_bits(actual, expected)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Within `tolerance` of the largest expected value."""
    assert (actual.double() - expected).abs().max() <= tolerance * expected.abs().max()


def assert_exports_as_truncated(inputs: ChunkInputs, tiles: ChunkTiles | None = None) -> ChunkOutputs:
    """Whatever must hold bit for bit of one batch with exports, each sequence on its own."""
    out = chunk_forward(inputs, tiles=tiles)
    plain = chunk_forward(with_offsets(inputs, None), tiles=tiles)
    assert_same_bits(out.output, plain.output)
    assert_same_bits(out.final_state, plain.final_state)
    assert inputs.export_offsets is not None and out.checkpoint is not None and plain.checkpoint is None
    offsets = inputs.export_offsets.tolist()
    # One batch of the truncated calls; a sequence's bits do not depend on its neighbours.
    short = chunk_forward(joined([truncated(inputs, n, at) for n, at in enumerate(offsets)]), tiles=tiles)
    begin = 0
    for n, at in enumerate(offsets):
        first, _ = bounds(inputs, n)
        assert_same_bits(out.output[first : first + at], short.output[begin : begin + at])
        if at:
            assert_same_bits(out.checkpoint[n], short.final_state[n])
        begin += at
    return out


@EACH
def test_residues_of_the_default_tile_export_as_truncated(recurrence: Recurrence) -> None:
    """Beside every edge of the 16-token blocks that a tile is made of, and at its middle."""
    tokens = default_tiles(recurrence).tokens
    edges = {at + beside for at in range(0, tokens + 1, 16) for beside in (-1, 0, 1)}
    check_residues(recurrence, sorted({at for at in edges if 1 <= at <= tokens} | {7, tokens + 2}))


@pytest.mark.slow
@EACH
def test_every_residue_of_the_default_tile_exports_as_truncated(recurrence: Recurrence) -> None:
    tokens = default_tiles(recurrence).tokens
    check_residues(recurrence, [*range(1, tokens + 1), tokens + 2])


def check_residues(recurrence: Recurrence, offsets: list[int]) -> None:
    tokens = default_tiles(recurrence).tokens
    lengths = [max(tokens // 2, at + 1) for at in offsets]
    inputs = make_inputs(recurrence, lengths, heads=1, key_dim=16, value_dim=16, offsets=offsets)
    assert_exports_as_truncated(inputs, ChunkTiles(tokens=tokens, values=16))


@EACH
@pytest.mark.parametrize("kind", list(TOLERANCE))
def test_varlen_and_gqa_at_the_default_tiles(recurrence: Recurrence, kind: torch.dtype) -> None:
    """A batch with and without exports: an offset inside a tile, none, one at its sequence's end."""
    tile = default_tiles(recurrence).tokens
    lengths, offsets = (tile + 6, 9, tile), (tile // 2 + 5, 0, tile)
    inputs = make_inputs(recurrence, lengths, heads=2, key_heads=1, dtype=kind, offsets=offsets)
    out = assert_exports_as_truncated(inputs)
    exact = reference(inputs)
    assert out.checkpoint is not None and exact.checkpoint is not None
    assert_close(out.output, exact.output, TOLERANCE[kind])
    assert_close(out.final_state, exact.final_state, TOLERANCE[kind])
    for n in (0, 2):
        assert_close(out.checkpoint[n], exact.checkpoint[n], TOLERANCE[kind])


@EACH
@pytest.mark.parametrize("kind", list(TOLERANCE))
def test_parts_of_the_keys_export_as_truncated(recurrence: Recurrence, kind: torch.dtype) -> None:
    check_parts(recurrence, kind, 32, [5, 16])


@pytest.mark.slow
@EACH
def test_every_residue_exports_as_truncated_in_parts_of_the_keys(recurrence: Recurrence) -> None:
    check_parts(recurrence, torch.float32, 64, [*range(1, 17), 18])


def check_parts(recurrence: Recurrence, kind: torch.dtype, key_dim: int, offsets: list[int]) -> None:
    lengths = [at + 3 for at in offsets]
    inputs = make_inputs(recurrence, lengths, 1, key_dim=key_dim, value_dim=16, dtype=kind, offsets=offsets)
    assert_close_and_as_truncated(inputs, IN_PARTS)


@EACH
def test_float32_at_the_key_dim_of_a_layer(recurrence: Recurrence) -> None:
    """128: in the parts in which the default tiles of float32 are compiled."""
    tile = default_tiles(recurrence).tokens
    lengths, offsets = (tile + 6,), (tile // 2 + 5,)
    assert_close_and_as_truncated(
        make_inputs(recurrence, lengths, 1, key_dim=128, value_dim=16, offsets=offsets)
    )


def assert_close_and_as_truncated(inputs: ChunkInputs, tiles: ChunkTiles | None = None) -> None:
    out, exact = assert_exports_as_truncated(inputs, tiles), reference(inputs)
    assert out.checkpoint is not None and exact.checkpoint is not None
    tolerance = TOLERANCE[inputs.v.dtype]
    assert_close(out.output, exact.output, tolerance)
    assert_close(out.final_state, exact.final_state, tolerance)
    assert_close(out.checkpoint, exact.checkpoint, tolerance)


@EACH
@pytest.mark.parametrize("at", [5, 16])
def test_nothing_after_the_offset_reaches_the_export(recurrence: Recurrence, at: int) -> None:
    inputs = make_inputs(recurrence, (20, 7), heads=1, key_dim=16, value_dim=16, offsets=(at, 0))
    clean = chunk_forward(inputs, tiles=SMALL)
    nan = chunk_forward(poisoned(inputs, 0, at), tiles=SMALL)
    assert clean.checkpoint is not None and nan.checkpoint is not None
    assert_same_bits(nan.checkpoint[0], clean.checkpoint[0])
    assert_same_bits(nan.output[:at], clean.output[:at])
    # The poison has worked, and only in its own sequence.
    assert nan.final_state[0].isnan().all()
    assert_same_bits(nan.output[20:], clean.output[20:])
    assert_same_bits(nan.final_state[1], clean.final_state[1])


@EACH
@pytest.mark.parametrize("kind", list(TOLERANCE))
def test_a_warm_call_from_the_tile_grid_continues_bit_for_bit(
    recurrence: Recurrence, kind: torch.dtype
) -> None:
    at = default_tiles(recurrence).tokens
    inputs = make_inputs(recurrence, (at + 21,), dtype=kind, offsets=(at,))
    whole = chunk_forward(inputs)
    assert whole.checkpoint is not None
    warm = chunk_forward(resumed(inputs, 0, at, whole.checkpoint[0]))
    assert_same_bits(warm.output, whole.output[at:])
    assert_same_bits(warm.final_state, whole.final_state)


@EACH
def test_a_warm_call_off_the_grid_stays_within_rounding(recurrence: Recurrence) -> None:
    inputs = make_inputs(recurrence, (45,), offsets=(21,))
    whole = chunk_forward(inputs, tiles=SMALL)
    assert whole.checkpoint is not None
    warm = chunk_forward(resumed(inputs, 0, 21, whole.checkpoint[0]), tiles=SMALL)
    assert_close(warm.output, whole.output[21:].double(), 1e-6)
    assert_close(warm.final_state, whole.final_state.double(), 1e-6)


@EACH
def test_without_initial_state_and_with_an_empty_sequence(recurrence: Recurrence) -> None:
    cold = make_inputs(recurrence, (18, 0, 5), initial=False, offsets=(7, 0, 6))
    out = chunk_forward(cold, tiles=SMALL)
    zeros = replace(cold, initial_state=torch.zeros_like(out.final_state))
    same = chunk_forward(zeros, tiles=SMALL)
    assert out.checkpoint is not None and same.checkpoint is not None
    assert_same_bits(out.output, same.output)
    assert_same_bits(out.final_state, same.final_state)
    assert_same_bits(out.checkpoint[0], same.checkpoint[0])
    assert not out.final_state[1].any()  # no tokens: the initial state
    # The last offset is beyond its sequence: it must change nothing.
    assert_close(out.output, reference(cold).output, 1e-6)


def test_equal_keys_written_in_full_lose_no_digits() -> None:
    """The worst case of a triangular inverse by power series."""
    inputs = make_inputs(Recurrence.GDN, (64,), heads=1, key_dim=16, value_dim=16)
    inputs = replace(
        inputs,
        k=inputs.k[:1].expand_as(inputs.k).contiguous(),
        beta=torch.ones_like(inputs.beta),
        log_decay=torch.zeros_like(inputs.log_decay),
    )
    out, exact = chunk_forward(inputs, tiles=ChunkTiles(tokens=64, values=16)), reference(inputs)
    assert_close(out.output, exact.output, 1e-6)
    assert_close(out.final_state, exact.final_state, 1e-6)


@EACH
def test_gates_that_forget_all_never_overflow(recurrence: Recurrence) -> None:
    """exp(-60) a token, as a KDA without a lower bound on its gate may ask for.

    KDA's decays within a tile are differences of float32 sums: digits are lost as those sums grow, and no more.
    """
    inputs = make_inputs(recurrence, (32,), heads=1, key_dim=16, value_dim=16, offsets=(20,))
    decay = inputs.log_decay.clone()
    decay[3:30:2] = -60.0
    inputs = replace(inputs, log_decay=decay)
    out, exact = assert_exports_as_truncated(inputs, SMALL), reference(inputs)
    largest_sum = -float(decay.view(2, 16, -1).sum(1).min())
    tolerance = 2**-24 * largest_sum if recurrence is Recurrence.KDA else 1e-6
    assert_close(out.output, exact.output, tolerance)
    assert_close(out.final_state, exact.final_state, tolerance)


def test_unaligned_inputs_are_copied_to_the_same_result() -> None:
    inputs = make_inputs(Recurrence.GDN, (20,), heads=1, key_dim=16, value_dim=16)
    room = torch.empty(inputs.beta.numel() + 1)
    room[1:] = inputs.beta.flatten()
    shifted = replace(inputs, beta=room[1:].view_as(inputs.beta))
    assert shifted.beta.data_ptr() % 16
    assert_same_bits(chunk_forward(shifted, tiles=SMALL).output, chunk_forward(inputs, tiles=SMALL).output)


@pytest.mark.slow
@settings(max_examples=50, derandomize=True)
@given(data=st.data(), recurrence=st.sampled_from(Recurrence), seed=st.integers(0, 99))
def test_any_batch_exports_as_truncated(data: st.DataObject, recurrence: Recurrence, seed: int) -> None:
    lengths = data.draw(st.lists(st.integers(0, 24), min_size=1, max_size=3))
    offsets = [data.draw(st.integers(0, length)) for length in lengths]
    inputs = make_inputs(
        recurrence,
        lengths,
        heads=1,
        key_dim=16,
        value_dim=16,
        seed=seed,
        offsets=offsets,
        initial=seed % 2 == 0,
    )
    out, exact = assert_exports_as_truncated(inputs, SMALL), reference(inputs)
    torch.testing.assert_close(out.final_state.double(), exact.final_state, atol=3e-6, rtol=0)
