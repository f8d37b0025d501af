"""Rollback weighed by learnt rates of return over how long a conversation has been silent."""

from __future__ import annotations

from collections.abc import Sequence

from flashstate.core.policies.base import PolicySettings, Rank, ThreadedPolicy
from flashstate.core.policies.rollback import Rollback
from flashstate.core.returns import ReturnRates
from flashstate.core.state import RecoveryUnit
from flashstate.core.survival import AGES, age_bucket, lowest, reached_at
from flashstate.core.thread import Thread


class Hazard(ThreadedPolicy, Rollback):
    """Expected returns a second * (chance that the next one resumes here * restore cost / size). No watermark."""

    name = "hazard"

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self.returns = ReturnRates()

    def weight(self, unit: RecoveryUnit) -> float:
        return max(self.chance(unit), 0.0) * self.density(unit)

    def factor(self, owner: Thread | RecoveryUnit, now: float) -> float:
        table, age, _ = self._silence(owner, now)
        return table[age]

    def lowest(self, owner: Thread | RecoveryUnit, now: float, least: float) -> tuple[float, float | None]:
        table, age, since_s = self._silence(owner, now)
        if since_s is None:
            return table[age], None
        found, later = lowest(table, age, least)
        return found, reached_at(later, since_s, now) if later < AGES else None

    def _silence(self, owner: Thread | RecoveryUnit, now: float) -> tuple[Sequence[float], int, float | None]:
        """What ages of silence are worth, the age it has, and since when; None while it runs."""
        if isinstance(owner, RecoveryUnit):
            return self.returns.table(()), age_bucket(now - owner.last_use_s), owner.last_use_s
        if owner.running:
            return self.returns.table(()), 0, None
        table = self.returns.table(self.returns.kind(owner))
        return table, age_bucket(now - owner.since_s), owner.since_s

    def evicted(self, unit: RecoveryUnit, rank: Rank) -> None:
        """Nothing to age: a factor falls by itself."""

    def moved(self, thread: Thread, now: float) -> bool:
        if not thread.running:
            self.returns.begin(thread)
        return True

    def learn(self, thread: Thread, rollback_tokens: int, population: int, now: float) -> bool:
        self.returns.finish(thread, now)
        due = super().learn(thread, rollback_tokens, population, now)
        if due:
            self.returns.publish(now)
        return due
