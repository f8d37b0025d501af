"""The plain order of evictions: look at every unit each time."""

from __future__ import annotations

from collections.abc import Iterable

from flashstate.core.policies.base import Rank
from flashstate.core.queue import EvictionQueue
from flashstate.core.state import RecoveryUnit


class ScanQueue(EvictionQueue):
    """Remembers nothing of ranks."""

    def push(self, unit: RecoveryUnit, now: float) -> None:
        pass

    def rebuild(self, units: Iterable[RecoveryUnit], now: float) -> None:
        pass

    def peek(self, now: float) -> tuple[RecoveryUnit, Rank] | None:
        free = [unit for unit in self._members if not unit.is_held]
        unparked = [unit for unit in free if not unit.parked]
        rank = self.policy.rank
        first = min(
            unparked,
            key=lambda unit: (rank(unit, now), unit.serial),
            default=max(free, key=lambda unit: unit.park_serial, default=None),
        )
        return None if first is None else (first, rank(first, now))
