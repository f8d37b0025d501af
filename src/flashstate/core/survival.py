"""How long conversations stay silent: product-limit rates over age, learnt online, silences still open included."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import inf, nextafter
from typing import Final

EDGES_S: Final = tuple(2 ** (step / 4) for step in range(49))
"""Ages at which a rate may change, in seconds: quarter powers of two from 1 to 4,096."""
AGES: Final = len(EDGES_S) + 1
_LENGTHS_S: Final = tuple(high - low for low, high in pairwise((0.0, *EDGES_S, 2 * EDGES_S[-1])))
_ROUNDING_S: Final = 1e-6
"""An age is a difference of clock readings: at an edge it may come out a little short."""

PRIOR_RATES: Final = (0.16,) * AGES
"""Before anything is seen: half of what reaches an age is back before it has doubled, at any age."""


def age_bucket(age_s: float) -> int:
    """Which stretch of ages `age_s` falls in, 0 to AGES - 1."""
    return bisect_right(EDGES_S, age_s + _ROUNDING_S)


def reached_at(age: int, since_s: float, now: float) -> float:
    """When what is silent since `since_s` has reached stretch `age`, in seconds: a little early, later than `now`."""
    # Early by more than `age_bucket` is, or a rank could fall unseen; who asks in between asks again.
    return max(since_s + EDGES_S[age - 1] - 2 * _ROUNDING_S, nextafter(now, inf))


class Silences:
    """How many reached each stretch of ages, and how many of those ended in it."""

    __slots__ = ("ended", "reached")

    def __init__(self) -> None:
        self.reached = [0.0] * AGES
        self.ended = [0.0] * AGES

    def add(self, age_s: float, *, returned: bool) -> None:
        """One silence, over after `age_s` or still open then: where it is cut off it counts by half."""
        last = age_bucket(age_s)
        for age in range(last):
            self.reached[age] += 1
        self.reached[last] += 1.0 if returned else 0.5
        self.ended[last] += returned

    def plus(self, other: Silences) -> Silences:
        """The sum of both."""
        total = Silences()
        total.reached = [a + b for a, b in zip(self.reached, other.reached, strict=True)]
        total.ended = [a + b for a, b in zip(self.ended, other.ended, strict=True)]
        return total

    def rates(self, prior: Sequence[float], weight: float) -> list[float]:
        """P(over within the stretch | reached it), drawn towards `prior` by `weight` silences."""
        return [
            (ended + weight * before) / (reached + weight)
            for ended, reached, before in zip(self.ended, self.reached, prior, strict=True)
        ]


def worth(rates: Sequence[float]) -> list[float]:
    """For each age: the best ratio, over how long one might go on keeping, of P(back by then) to the time held.

    In returns a second: the Gittins index of a silence, what keeping a unit of value one second longer earns.
    """
    table = []
    for age in range(AGES):
        back, held_s, silent, best = 0.0, 0.0, 1.0, 0.0
        for rate, length_s in zip(rates[age:], _LENGTHS_S[age:], strict=True):
            over = silent * rate
            held_s += (silent - 0.5 * over) * length_s
            back += over
            silent -= over
            ratio = back / held_s
            if ratio > best:
                best = ratio
        table.append(best)
    return table


def lowest(table: Sequence[float], age: int, least: float) -> tuple[float, int]:
    """The lowest of `table` from `age` to before the first that is below both `least` and `table[age]`.

    And where that first is: AGES if nowhere.
    """
    found = table[age]
    floor = min(found, least)
    for later in range(age + 1, AGES):
        value = table[later]
        if value < floor:
            return found, later
        if value < found:
            found = value
    return found, AGES
