"""A state exported from inside a chunk by a kernel that exports nothing: the chunk is run in two or three calls.

A chunked kernel with a tile grid computes the same bits only where its tiles start in the same places. So the live
state is cut on the grid alone, and the rest of the way to the offset runs on a copy, whose outputs are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Output = TypeVar("Output")


def export_by_split(
    run: Callable[[int, int, int], Output],
    offset: int,
    tokens: int,
    grid: int,
    slot: int,
    export_slot: int,
    copy: Callable[[int, int], None],
) -> list[Output]:
    """Runs one sequence's chunk of `tokens` tokens, in place; leaves its state after `offset` tokens in export_slot.

    run(start, end, slot): the engine's kernel on tokens start to end of the chunk, in place on the state in `slot`,
    which already holds the state before the chunk (zeros at a sequence's start); returns the outputs.
    copy(from, to): copies the state of one slot to another.
    offset: 0 to `tokens`; 0 exports nothing. grid: tokens a tile of the kernel, 1 where it has no grid.
    Returns the live outputs in the order of their tokens. They, the final state and the export have the bits of an
    unsplit call and of one truncated at `offset`, provided that the kernel's bits depend on where tiles start alone.
    Raises ValueError, before anything has run, for an offset or a grid out of range, or one slot for both states.
    """
    if not 0 <= offset <= tokens:
        raise ValueError(f"export offset {offset}: must be 0 to the chunk's {tokens} tokens")
    if grid < 1:
        raise ValueError(f"grid is {grid}: must be 1 (no grid) or the tokens of a tile")
    if offset and slot == export_slot:
        raise ValueError(f"slot {slot} is both the state's and the export's: they must differ")
    if offset in (0, tokens):
        outputs = [run(0, tokens, slot)]
        if offset:
            copy(slot, export_slot)
        return outputs
    cut = offset // grid * grid
    outputs = [run(0, cut, slot)] if cut else []
    copy(slot, export_slot)
    if cut < offset:
        run(cut, offset, export_slot)
    outputs.append(run(cut, tokens, slot))
    return outputs
