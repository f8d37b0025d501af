"""Rollback weighed by learnt rates of return over how long a conversation has been silent."""

from __future__ import annotations

from flashstate.core.policies.base import PolicySettings, Rank
from flashstate.core.policies.rollback import Rollback
from flashstate.core.returns import ReturnRates
from flashstate.core.state import RecoveryUnit
from flashstate.core.survival import EDGES_S, age_bucket
from flashstate.core.thread import Thread


class Hazard(Rollback):
    """Expected returns a second * chance that the next one resumes here * restore cost / size. No watermark."""

    name = "hazard"

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self.returns = ReturnRates()

    def rank(self, unit: RecoveryUnit, now: float) -> Rank:
        return (self._returns_a_second(unit, now) * self.chance(unit) * self.density(unit),)

    def _returns_a_second(self, unit: RecoveryUnit, now: float) -> float:
        thread = unit.thread
        if thread is None:
            return self.returns.worth((), now - unit.last_use_s)
        if thread.running:
            return self.returns.worth((), 0.0)
        return self.returns.worth(self.returns.kind(thread), now - thread.since_s)

    def deadline(self, unit: RecoveryUnit, now: float) -> float | None:
        thread = unit.thread
        if thread is not None and thread.running:
            return None
        since = unit.last_use_s if thread is None else thread.since_s
        bucket = age_bucket(now - since)
        return since + EDGES_S[bucket] if bucket < len(EDGES_S) else None

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
