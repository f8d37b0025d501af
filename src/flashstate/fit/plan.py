"""Which prefills to measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

SHORTEST_RATIO: Final = 64
"""The longest prompt over the shortest."""
LEAST_LONGEST: Final = 1024
"""Below it the overhead of a request hides what its tokens cost."""
_LENGTHS: Final = 10
_GROWTHS: Final = (-1, 0, -2, 0)
"""Which of the lengths that fit a prompt grows by. Two large ones in turn, lest two prompts grow to the same length."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A new prompt of `first` tokens; then, if `then` is given, the same prompt grown to `then` tokens.

    The second one starts warm where the server can resume. `held_out`: measured to check the fit, not to make it.
    """

    first: int
    then: int | None
    held_out: bool


def plan(longest: int) -> list[Chain]:
    """Chains of lengths from `longest` / 64 to `longest` tokens, in equal ratios. Every third is held out.

    The growth is in turn as much and as little as there is room for: a tool's result on a long conversation costs
    mostly E, a long document behind a short prompt mostly D. Raises ValueError if `longest` is too short.
    """
    if longest < LEAST_LONGEST:
        raise ValueError(
            f"--longest {longest}: must be {LEAST_LONGEST} tokens or more, or a request's overhead hides prefill"
        )
    grid = np.geomspace(longest / SHORTEST_RATIO, longest, _LENGTHS)
    lengths = [int(length) for length in np.round(grid)]
    chains = []
    for i, first in enumerate(lengths):
        fitting = [growth for growth in lengths if first + growth <= longest]
        growth = fitting[_GROWTHS[i % len(_GROWTHS)]] if fitting else None
        # Neither end: what lies between is to be predicted, not what lies beyond.
        held_out = i % 3 == 2 and i < len(lengths) - 1
        chains.append(Chain(first, None if growth is None else first + growth, held_out))
    return chains
