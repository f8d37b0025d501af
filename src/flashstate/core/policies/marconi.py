"""Marconi's eviction (MLSys 2025), from the paper: recency and compute saved a byte, weighed against each other."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from flashstate.core.policies.base import Policy, PolicySettings, Rank
from flashstate.core.state import RecoveryUnit, UnitTree
from flashstate.core.thread import Thread

CANDIDATE, BRANCH = 0.0, 1.0

AGES_S: Final = tuple(2.0 ** (step / 2) for step in range(27))
"""Ages at which recency falls: half powers of two from 1 to 8,192 s."""
_AGES: Final = len(AGES_S)


class Marconi(Policy):
    """score = recency + alpha * saving, both scaled to [0, 1] over the candidates; branch points go last.

    Recency is 1 / age, the saving is prefill seconds from the fallback, a block, for the paper's FLOPs a byte.
    Marconi scores every candidate at each eviction, O(units), for both scales and all recencies move. Here a unit is
    ranked again when its age has grown by half (recency is exact to a factor of 1.42, and 1 below a second), and the
    range of savings is taken afresh once in as many requests as there are units: O(log units) amortised.
    """

    name = "marconi"

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self.alpha = settings.marconi_alpha
        self._range = 0.0
        """Largest less least saving of the candidates, in seconds a block; 0 before it is first known."""
        self._used: set[RecoveryUnit] = set()
        """The units cached, and some that are gone."""
        self._tree: UnitTree | None = None
        self._requests = 0

    def rank(self, unit: RecoveryUnit, now: float) -> Rank:
        return self._rank(unit, _step(unit, now))

    def rank_until(self, unit: RecoveryUnit, now: float) -> tuple[Rank, float | None]:
        step = _step(unit, now)
        return self._rank(unit, step), self._deadline(unit, step)

    def _rank(self, unit: RecoveryUnit, step: int) -> Rank:
        score = 1 / AGES_S[step - 1] if step else 1.0
        if self._range:
            score += self.alpha * self.saving(unit) / self._range
        # By last use among equals, so that alpha 0 is LRU.
        return (BRANCH if unit.below[1] else CANDIDATE, score, unit.use_serial)

    def saving(self, unit: RecoveryUnit) -> float:
        """Prefill seconds saved for each block held."""
        return self.settings.cost.seconds(unit.fallback, unit.position) / unit.size_blocks

    def deadline(self, unit: RecoveryUnit, now: float) -> float | None:
        return self._deadline(unit, _step(unit, now))

    def _deadline(self, unit: RecoveryUnit, step: int) -> float | None:
        return unit.last_use_s + AGES_S[step] if step < _AGES else None

    def use(self, unit: RecoveryUnit) -> None:
        if unit.tree is not self._tree:
            self._tree = unit.tree
            self._used.clear()
        self._used.add(unit)

    def learn(self, thread: Thread, rollback_tokens: int, population: int, now: float) -> bool:
        self._requests += 1
        if self._requests < max(32, population):
            return False
        self._requests = 0
        self.weigh()
        return True

    def weigh(self) -> None:
        """Take the range of the candidates there are. O(units): all must be ranked again."""
        self._used = {unit for unit in self._used if unit.node.mark is unit}
        savings = [self.saving(unit) for unit in self._used if not unit.is_held and not unit.below[1]]
        self._range = max(savings) - min(savings) if savings else 0.0


def _step(unit: RecoveryUnit, now: float) -> int:
    """How many of the ages `unit` has reached. Exact at `last_use_s + age`, which a deadline asks for."""
    used = unit.last_use_s
    step = bisect_right(AGES_S, now - used)
    while step < _AGES and used + AGES_S[step] <= now:
        step += 1
    while step and used + AGES_S[step - 1] > now:
        step -= 1
    return step
