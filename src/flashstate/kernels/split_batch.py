"""`split` for a varlen batch: exports from any number of its sequences by a kernel that exports nothing, in two calls.

A varlen kernel computes each sequence by itself, whatever stands beside it. So pieces that do not wait for one another
share a call: first every live piece up to its cut on the grid; then, from the states it left, the live rests, and
beside them the copies that run on to the offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import torch


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens `begin` to `end` of the batch, all of one sequence."""

    row: int
    """The sequence."""
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """What each of the two calls computes. A sequence without tokens is in neither."""

    first: tuple[Piece, ...]
    """Live, from the initial states."""
    rest: tuple[Piece, ...]
    """Live, from the states that `first` left."""
    copies: tuple[Piece, ...]
    """From the same states to the offsets: outputs dropped, final states exported."""
    ready: tuple[int, ...]
    """Sequences whose export is the state that `first` left."""


def split_batch(bounds: Sequence[int], offsets: Sequence[int], grid: int) -> BatchSplit:
    """How to export after `offsets` tokens of each sequence (0: nothing) from a batch cut at `bounds`.

    bounds: N + 1 token positions, rising. offsets: N. grid: tokens a tile of the kernel, 1 where it has no grid.
    Raises ValueError for an offset or a grid out of range.
    """
    if grid < 1:
        raise ValueError(f"grid is {grid}: must be 1 (no grid) or the tokens of a tile")
    first, rest, copies, ready = [], [], [], []
    for row, ((begin, end), offset) in enumerate(zip(pairwise(bounds), offsets, strict=True)):
        if not 0 <= offset <= end - begin:
            raise ValueError(f"export offset {offset}: must be 0 to the sequence's {end - begin} tokens")
        cut = end if offset in (0, end - begin) else begin + offset // grid * grid
        if begin < cut:
            first.append(Piece(row, begin, cut))
        if cut < end:
            rest.append(Piece(row, cut, end))
        if cut < begin + offset:
            copies.append(Piece(row, cut, begin + offset))
        elif offset:
            ready.append(row)
    return BatchSplit(tuple(first), tuple(rest), tuple(copies), tuple(ready))


@dataclass(frozen=True, eq=False)
class Call:
    """One call of the kernel. A subclass may carry what else the kernel takes with it."""

    live: tuple[Piece, ...]
    copies: tuple[Piece, ...]
    rows: torch.Tensor
    """[live, then copies] int64, on the batch's device: which state each piece starts from."""

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return self.live + self.copies

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """The tokens of the pieces in `part` ([1, T, ...]), one after another.

        In new memory even where a slice would do: kernels are compiled apart for pointers aligned and not.
        """
        return torch.cat([part[:, piece.begin : piece.end] for piece in self.pieces], dim=1)

    def scatter(self, outputs: torch.Tensor, whole: torch.Tensor) -> None:
        """The reverse, of the live pieces alone. Mutates `whole`."""
        at = 0
        for piece in self.live:
            tokens = piece.end - piece.begin
            whole[:, piece.begin : piece.end] = outputs[:, at : at + tokens]
            at += tokens


def token_bounds(pieces: Sequence[Piece]) -> list[int]:
    """Where each piece begins among the tokens of a call of them, and where the last one ends."""
    bounds = [0]
    for piece in pieces:
        bounds.append(bounds[-1] + piece.end - piece.begin)
    return bounds


AnyCall = TypeVar("AnyCall", bound=Call)
Run = Callable[[AnyCall, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""(call, states [pieces, ...]) -> (outputs [1, tokens of the call, ...], final states [pieces, ...])."""


def export_from_batch(
    run: Run[AnyCall],
    first: AnyCall | None,
    second: AnyCall | None,
    ready: Sequence[int],
    initial: torch.Tensor,
    output: torch.Tensor,
) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
    """Computes a batch by its `BatchSplit`, a call left out where it has no pieces.

    ready: as in the split. initial: [N, ...] states, float32, as which `run` returns them: rounding one between the
    calls would cost bits. output: [1, T, ...], written. Returns the final states [N, ...], and the exports by their
    sequence. They and the output have the bits of an unsplit call and of one truncated at the offset, provided that the
    kernel's bits depend on where tiles start alone.
    Raises ValueError, before anything has run, for states of another type.
    """
    if initial.dtype != torch.float32:
        raise ValueError(f"initial states are {initial.dtype}: must be torch.float32")
    states = initial.clone()
    exports: dict[int, torch.Tensor] = {}
    if first is not None:
        _advance(run, first, states, output)
        exports = {row: states[row].clone() for row in ready}
    if second is not None:
        exports |= _advance(run, second, states, output)
    return states, exports


def _advance(
    run: Run[AnyCall], call: AnyCall, states: torch.Tensor, output: torch.Tensor
) -> dict[int, torch.Tensor]:
    """Run one call from `states`, and put its live results there and in `output`; returns what its copies came to."""
    outputs, ends = run(call, states.index_select(0, call.rows))
    live = len(call.live)
    states.index_copy_(0, call.rows[:live], ends[:live])
    call.scatter(outputs, output)
    return {piece.row: ends[live + index] for index, piece in enumerate(call.copies)}
