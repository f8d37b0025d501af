"""Marconi's eviction (MLSys 2025), from the paper: recency and compute saved a byte, weighed against each other."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from flashstate.core.policies.base import Policy, PolicySettings, Rank
from flashstate.core.state import RecoveryUnit, UnitTree
from flashstate.core.thread import Thread

CANDIDATE, BRANCH = 0.0, 1.0

UNITS_A_REQUEST: Final = 64
"""Units ranked afresh for each request, on average: what Marconi makes of a load hangs on ranges of the moment."""


class Marconi(Policy):
    """score = recency + alpha * saving, both scaled to [0, 1] over the candidates; branch points go last.

    Recency is the time of the last use, the saving is prefill seconds from the fallback, a block, for the paper's
    FLOPs a byte. Marconi scales both anew at each eviction, O(units); here the two ranges are taken once in a
    `UNITS_A_REQUEST`th as many requests as there are units: O(log units) amortised.
    """

    name = "marconi"

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self.alpha = settings.marconi_alpha
        self.seconds_a_saving = 0.0
        """Seconds of last use that alpha 1 gives for a saving of one second a block; 0 before the ranges are known."""
        self._used: set[RecoveryUnit] = set()
        """The units cached, and some that are gone."""
        self._tree: UnitTree | None = None
        self._requests = 0

    def rank(self, unit: RecoveryUnit, now: float) -> Rank:
        # The score in seconds: to scale it and take off the least of both ranges would change no order.
        score, weight = unit.last_use_s, self.alpha * self.seconds_a_saving
        if weight:
            score += weight * self.saving(unit)
        # By last use among equals, so that alpha 0 is LRU.
        return (BRANCH if unit.below[1] else CANDIDATE, score, unit.use_serial)

    def saving(self, unit: RecoveryUnit) -> float:
        """Prefill seconds saved for each block held."""
        return self.settings.cost.seconds(unit.fallback, unit.position) / unit.size_blocks

    def use(self, unit: RecoveryUnit) -> None:
        if unit.tree is not self._tree:
            self._tree = unit.tree
            self._used.clear()
        self._used.add(unit)

    def learn(self, thread: Thread, rollback_tokens: int, population: int, now: float) -> bool:
        self._requests += 1
        if self._requests * UNITS_A_REQUEST < population:
            return False
        self._requests = 0
        self.weigh()
        return True

    def weigh(self) -> None:
        """Take the ranges over the candidates there are. O(units): all must be ranked again."""
        self._used = {unit for unit in self._used if unit.node.mark is unit}
        candidates = [unit for unit in self._used if not (unit.is_held or unit.below[1])]
        savings = _range([self.saving(unit) for unit in candidates])
        self.seconds_a_saving = _range([unit.last_use_s for unit in candidates]) / savings if savings else 0.0


def _range(values: Collection[float]) -> float:
    return max(values) - min(values) if values else 0.0
