"""Rollback weighed by learnt rates of return over how long a conversation has been silent."""

from __future__ import annotations

from flashstate.core.policies.base import PolicySettings, Rank
from flashstate.core.policies.rollback import Rollback
from flashstate.core.returns import Kind, ReturnRates
from flashstate.core.state import RecoveryUnit
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
        if thread is None:
            since: float = unit.last_use_s
            kind: Kind = ()
        elif thread.running:
            return None
        else:
            since, kind = thread.since_s, self.returns.kind(thread)
        age_s = self.returns.falls_at(kind, now - since)
        return None if age_s is None else since + age_s

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
