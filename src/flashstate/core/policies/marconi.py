"""Marconi's eviction (MLSys 2025), from the paper: recency and compute saved a byte, weighed against each other."""

from __future__ import annotations

from flashstate.core.policies.base import Policy, PolicySettings, Rank
from flashstate.core.state import RecoveryUnit, UnitTree
from flashstate.core.thread import Thread

CANDIDATE, BRANCH = 0.0, 1.0


class Marconi(Policy):
    """score = recency + alpha * saving, both scaled to [0, 1] over the candidates; branch points go last.

    The saving is prefill seconds from the fallback, a block, for the paper's FLOPs a byte. Marconi scores every
    candidate at each eviction, O(units). Both scales are linear, so the order is also that of

        last use + alpha * (range of last uses / range of savings) * saving

    where time passing moves nothing. We take the two ranges afresh once in as many requests as there are units:
    O(log units) amortised, exact but for what the ranges do in between.
    """

    name = "marconi"

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self.alpha = settings.marconi_alpha
        self._weight_s = 0.0
        """Seconds of last use that a saving of one second a block is worth; 0 before the first ranges."""
        self._used: set[RecoveryUnit] = set()
        """The units cached, and some that are gone."""
        self._tree: UnitTree | None = None
        self._requests = 0

    def rank(self, unit: RecoveryUnit, now: float) -> Rank:
        branch = BRANCH if unit.below[1] else CANDIDATE
        return (branch, unit.last_use_s + self._weight_s * self.saving(unit))

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
        if self._requests < max(32, population):
            return False
        self._requests = 0
        self.weigh()
        return True

    def weigh(self) -> None:
        """Take the ranges of the candidates there are. O(units): all must be ranked again."""
        self._used = {unit for unit in self._used if unit.node.mark is unit}
        candidates = [unit for unit in self._used if not unit.is_held and not unit.below[1]]
        if not self.alpha or not candidates:
            self._weight_s = 0.0
            return
        uses = [unit.last_use_s for unit in candidates]
        savings = [self.saving(unit) for unit in candidates]
        spread = max(savings) - min(savings)
        self._weight_s = self.alpha * (max(uses) - min(uses)) / spread if spread else 0.0
