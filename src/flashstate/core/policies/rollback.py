"""GreedyDual-Size weighted by the learnt chance that the next turn resumes at each state. Our default."""

from __future__ import annotations

from flashstate.core.policies.base import PolicySettings
from flashstate.core.policies.gds import GreedyDualSize
from flashstate.core.state import RecoveryUnit


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
    if tokens < 0:
        return 0.0
    bucket = min(tokens.bit_length(), len(cumulative) - 1)
    if bucket == 0:
        return cumulative[0]
    low = 1 << (bucket - 1)
    share = min((tokens - low + 1) / low, 1.0)
    return cumulative[bucket - 1] + share * (cumulative[bucket] - cumulative[bucket - 1])


class Rollback(GreedyDualSize):
    """H(u) = L(u) + P(next resume falls between u and the next deeper state) * restore cost / size.

    Plain GreedyDual-Size prices a superseded state as if the next turn might well want it. The chance is learnt
    online and published in epochs, so that ranks do not drift under the heap.
    """

    name = "rollback"
    follows_path = True

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self.distribution = RollbackDistribution()
        self._published = self.distribution.cumulative()
        self._since_published = 0

    def chance(self, unit: RecoveryUnit) -> float:
        """Probability that the next resume on this path falls at `unit`. A branch point counts in full."""
        states_below = unit.states_below()
        below = next(states_below, None)
        behind = unit.path_end - unit.position
        if below is None:
            return at_most(self._published, behind)
        if next(states_below, None) is not None:
            return 1.0
        return at_most(self._published, behind) - at_most(self._published, unit.path_end - below.position)

    def priority(self, unit: RecoveryUnit) -> float:
        return unit.stamp + self.chance(unit) * self.density(unit)

    def learn(self, rollback_tokens: int, population: int) -> bool:
        self.distribution.add(rollback_tokens)
        self._since_published += 1
        if self._since_published < max(32, population):
            return False
        self._since_published = 0
        self._published = self.distribution.cumulative()
        return True
