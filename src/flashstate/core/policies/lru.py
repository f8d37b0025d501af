"""Whole-state LRU."""

from flashstate.core.policies.base import Policy, Rank
from flashstate.core.state import RecoveryUnit


class UnitLRU(Policy):
    """Evicts the hybrid state whose last use lies longest back."""

    name = "lru"

    def rank(self, unit: RecoveryUnit, now: float) -> Rank:
        return (unit.use_serial,)
