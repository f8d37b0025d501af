"""GreedyDual-Size over recovery units (FlashState, section 4, equation 7)."""

from flashstate.core.policies.base import Policy, Rank
from flashstate.core.state import RecoveryUnit


class GreedyDualSize(Policy):
    """H(u) = L(u) + restore cost / size, in seconds of prefill a block."""

    name = "gds"

    def density(self, unit: RecoveryUnit) -> float:
        """Prefill seconds saved for each block held: T(fallback, position) / size."""
        return self.settings.cost.seconds(unit.fallback, unit.position) / unit.size_blocks

    def priority(self, unit: RecoveryUnit) -> float:
        """H(u)."""
        return unit.stamp + self.density(unit)

    def rank(self, unit: RecoveryUnit, now: float) -> Rank:
        return (self.priority(unit),)

    def evicted(self, unit: RecoveryUnit, rank: Rank) -> None:
        self.watermark = max(self.watermark, rank[-1])
