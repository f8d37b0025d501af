"""GreedyDual-Size weighted by the learnt chance that the next turn resumes at each state."""

from __future__ import annotations

from flashstate.core.policies.base import PolicySettings
from flashstate.core.policies.gds import GreedyDualSize
from flashstate.core.state import RecoveryUnit
from flashstate.core.thread import Thread

STEPS = 4


class RollbackDistribution:
    """How far before the last request's end the next request on a path resumes, in tokens, by powers of two.

    Bucket 0 counts exact continuations, bucket i >= 1 rollbacks in [2^(i-1), 2^i).
    """

    BUCKETS = 32
    PRIOR_WEIGHT = 16.0
    PRIOR_CONTINUES = 0.9
    """Before anything is seen: nine turns of ten continue exactly, the rest spread evenly over the buckets."""

    def __init__(self) -> None:
        rest = self.PRIOR_WEIGHT * (1 - self.PRIOR_CONTINUES) / (self.BUCKETS - 1)
        self.counts = [self.PRIOR_WEIGHT * self.PRIOR_CONTINUES] + [rest] * (self.BUCKETS - 1)

    def add(self, tokens: int) -> None:
        self.counts[min(max(tokens, 0).bit_length(), self.BUCKETS - 1)] += 1

    def cumulative(self) -> tuple[float, ...]:
        """P(rollback falls in buckets 0..i), for every i."""
        total, sums = 0.0, []
        for count in self.counts:
            total += count
            sums.append(total)
        return tuple(value / total for value in sums)


def at_most(cumulative: tuple[float, ...], tokens: int) -> float:
    """P(rollback <= tokens), linear inside a bucket."""
    if tokens <= 0:
        return cumulative[0] if tokens == 0 else 0.0
    bucket = tokens.bit_length()
    if bucket >= len(cumulative):
        return cumulative[-1]
    before, low = cumulative[bucket - 1], 1 << (bucket - 1)
    return before + (tokens - low + 1) / low * (cumulative[bucket] - before)


class Rollback(GreedyDualSize):
    """H(u) = L(u) + P(next resume falls between u and the next deeper state) * restore cost / size.

    Plain GreedyDual-Size prices a superseded state as if the next turn might well want it. The chance is learnt
    online and published in epochs, so that ranks do not drift under the heap.
    """

    name = "rollback"

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self.distribution = RollbackDistribution()
        self._published = self.distribution.cumulative()
        self._since_published = 0

    def follow(self, unit: RecoveryUnit, path_end: int, *, ended: bool, nearest: bool) -> bool:
        """Moves the end of the path in steps of a quarter of its distance, so that far states move seldom.

        A path of n turns is then re-ranked O(log n) times a state instead of n. Chances are learnt by powers of two.
        """
        moved = abs(path_end - unit.path_end)
        if not nearest and STEPS * moved <= unit.path_end - unit.position:
            return False
        unit.path_end = path_end
        return True

    def chance(self, unit: RecoveryUnit) -> float:
        """Probability that the next resume on this path falls at `unit`. A branch point counts in full."""
        below, is_branch = unit.below
        if is_branch:
            return 1.0
        behind = unit.path_end - unit.position
        if below is None:
            return at_most(self._published, behind)
        # The end may lie a step short of a state that has become the next one only by an eviction.
        between = max(unit.path_end - below.position, 0)
        return at_most(self._published, behind) - at_most(self._published, between)

    def priority(self, unit: RecoveryUnit) -> float:
        return unit.stamp + self.chance(unit) * self.density(unit)

    def learn(self, thread: Thread, rollback_tokens: int, population: int, now: float) -> bool:
        self.distribution.add(rollback_tokens)
        self._since_published += 1
        if self._since_published < max(32, population):
            return False
        self._since_published = 0
        self._published = self.distribution.cumulative()
        return True
