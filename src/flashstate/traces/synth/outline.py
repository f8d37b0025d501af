"""How each session of a workload starts and how long it gets, spread evenly over what was recorded.

Neither is drawn at chance: a low-discrepancy sequence fills the kinds of sessions evenly, so that a small workload
is as close to the recorded mix as its size allows, and a larger one begins with the smaller one's sessions.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from statistics import NormalDist
from typing import Final

from flashstate.traces.synth.params import Start

_NORMAL: Final = NormalDist()
_ROOT: Final = 1.2207440846057596
"""Of x^4 = x + 1: its powers make the sequence (Roberts' R3)."""
_STEPS: Final = (1 / _ROOT, 1 / _ROOT**2, 1 / _ROOT**3)


@dataclass(frozen=True, slots=True)
class Outline:
    """A session's start and length. `level`, from 0 to 1, is that of its number of turns."""

    start: Start
    level: float
    turns: int
    first_prompt: int


class Outlines:
    """The outlines of all sessions of a workload."""

    def __init__(self, starts: tuple[Start, ...], seed: int) -> None:
        draw = Random(f"{seed}/outlines")
        self._starts = starts
        self._bounds = list(accumulate(start.share for start in starts))
        self._offsets = tuple(draw.random() for _ in _STEPS)

    def at(self, number: int) -> Outline:
        """Of the session at that place, from 0."""
        kind, level, other = (
            inner((offset + number * step) % 1) for offset, step in zip(self._offsets, _STEPS, strict=True)
        )
        start = self._starts[bisect_right(self._bounds, kind * self._bounds[-1])]
        # The first prompt goes with the number of turns as recorded.
        own = (1 - start.together**2) ** 0.5 * _NORMAL.inv_cdf(other)
        prompt_level = _NORMAL.cdf(start.together * _NORMAL.inv_cdf(level) + own)
        turns, first_prompt = start.turns.at(level), start.first_prompt.at(prompt_level)
        return Outline(start, level, max(1, round(turns)), max(1, round(first_prompt)))


def inner(level: float) -> float:
    """Without the ends 0 and 1, for which the normal scale has no place."""
    return min(max(level, 1e-9), 1 - 1e-9)
