"""The release code's two tiers over GreedyDual-Size (in the FlashStates fork, not in its paper)."""

from flashstate.core.policies.base import Rank
from flashstate.core.policies.gds import GreedyDualSize
from flashstate.core.state import RecoveryUnit

INNER, LEAF = 0.0, 1.0


class LeafLast(GreedyDualSize):
    """Every inner state goes before any leaf; a leaf idle too long counts as inner; branch points are leaves.

    H orders each tier. The watermark rises only when a leaf goes.
    """

    name = "leaf-last"

    def is_superseded(self, unit: RecoveryUnit) -> bool:
        """Whether exactly one deeper state makes `unit` inner."""
        return unit.tier == "inner"

    def is_idle(self, unit: RecoveryUnit, now: float) -> bool:
        idle = self.settings.leaf_idle_s
        return idle is not None and now >= unit.last_use_s + idle and unit.tier == "leaf"

    def rank(self, unit: RecoveryUnit, now: float) -> Rank:
        inner = self.is_superseded(unit) or self.is_idle(unit, now)
        return (INNER if inner else LEAF, self.priority(unit))

    def deadline(self, unit: RecoveryUnit, now: float) -> float | None:
        idle = self.settings.leaf_idle_s
        if idle is None or now >= unit.last_use_s + idle:
            return None
        return unit.last_use_s + idle

    def evicted(self, unit: RecoveryUnit, rank: Rank) -> None:
        if rank[0] == LEAF:
            super().evicted(unit, rank)
