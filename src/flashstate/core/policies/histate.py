"""HiState-like eviction: the last access, put off by what recomputation would cost."""

from flashstate.core.policies.base import Policy, Rank
from flashstate.core.state import RecoveryUnit


class HiState(Policy):
    """Last access + weight * prefill seconds saved a block: equal costs a block make it LRU."""

    name = "histate"
    weight_s = 1.0
    """Seconds of last access that a second of prefill a block is worth."""

    def rank(self, unit: RecoveryUnit, now: float) -> Rank:
        saved = self.settings.cost.seconds(unit.fallback, unit.position) / unit.size_blocks
        return (unit.last_use_s + self.weight_s * saved,)
