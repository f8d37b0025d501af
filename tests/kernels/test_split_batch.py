"""The pieces of a batch that exports, over a recurrence whose bits depend on where its tiles start."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashstate.kernels.split_batch import Call, Piece, export_from_batch, split_batch, token_bounds

GRID = 4


def recurrence(tokens: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """tokens: [1, T]. Rounds once a tile: a tile that starts elsewhere gives other bits."""
    outputs = []
    for tile in tokens[0].split(GRID):
        outputs.append(state + tile.cumsum(0))
        state = state * 0.7 + tile.sum()
    return torch.cat(outputs)[None], state


def make_batch(lengths: list[int]) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(sum(lengths))
    bounds = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    return (
        bounds,
        torch.randn(1, bounds[-1], generator=random),
        torch.randn(len(lengths), generator=random),
    )


def call_of(live: tuple[Piece, ...], copies: tuple[Piece, ...]) -> Call | None:
    rows = torch.tensor([piece.row for piece in live + copies])
    return Call(live, copies, rows) if live + copies else None


sequences = st.lists(
    st.integers(0, 14).flatmap(lambda tokens: st.tuples(st.just(tokens), st.integers(0, tokens))),
    min_size=1,
    max_size=5,
).filter(lambda found: any(tokens for tokens, _ in found))


@given(sequences)
def test_outputs_states_and_exports_have_the_bits_of_calls_of_their_own(found: list[tuple[int, int]]) -> None:
    bounds, tokens, initial = make_batch([tokens for tokens, _ in found])
    offsets = [offset for _, offset in found]
    split = split_batch(bounds, offsets, GRID)

    def run(call: Call, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mine, inside = call.gather(tokens), token_bounds(call.pieces)
        parts = [
            recurrence(mine[:, begin:end], state)
            for (begin, end), state in zip(pairwise(inside), states, strict=True)
        ]
        return torch.cat([output for output, _ in parts], dim=1), torch.stack([state for _, state in parts])

    output = torch.full_like(tokens, torch.nan)
    first, second = call_of(split.first, ()), call_of(split.rest, split.copies)
    states, exports = export_from_batch(run, first, second, split.ready, initial, output)
    assert set(exports) == {row for row, offset in enumerate(offsets) if offset}
    for row, (begin, end) in enumerate(pairwise(bounds)):
        if begin == end:
            assert states[row] == initial[row]
            continue
        whole, state = recurrence(tokens[:, begin:end], initial[row])
        assert torch.equal(output[:, begin:end], whole)
        assert states[row] == state
        if offsets[row]:
            _, at_offset = recurrence(tokens[:, begin : begin + offsets[row]], initial[row])
            assert exports[row] == at_offset


def test_no_more_than_a_tile_is_computed_twice() -> None:
    split = split_batch([0, 100, 130], [99, 0], 64)
    assert split.first == (Piece(0, 0, 64), Piece(1, 100, 130))
    assert split.rest == (Piece(0, 64, 100),)
    assert split.copies == (Piece(0, 64, 99),)


@pytest.mark.parametrize(
    ("offsets", "grid", "named"), [([9], 4, "9"), ([-1], 4, "-1"), ([1], 0, "grid is 0")]
)
def test_what_cannot_be_exported_is_named(offsets: list[int], grid: int, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        split_batch([0, 8], offsets, grid)


def test_states_that_would_be_rounded_between_the_calls_are_refused() -> None:
    call = call_of((Piece(0, 0, 4),), ())
    with pytest.raises(ValueError, match=r"torch\.bfloat16: must be torch\.float32"):
        export_from_batch(
            lambda call, states: (states, states),
            *(call, None, ()),
            torch.zeros(1, dtype=torch.bfloat16),
            torch.zeros(1, 4),
        )
