"""Our default: what each state is expected to save a second, for each block it holds."""

from __future__ import annotations

from flashstate.core.policies.base import PolicySettings
from flashstate.core.policies.hazard import Hazard
from flashstate.core.state import RecoveryUnit
from flashstate.core.thread import Thread
from flashstate.core.turn_back import TurnBacks


class Forecast(Hazard):
    """Hazard with turning back counted from the last prompt's end, where agents' edits begin.

    A state inside the prompt of a running request is then priced at once as what it will be when the request has
    ended: useful only if the next one turns back.
    """

    name = "forecast"

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__(settings)
        self.turn_backs = TurnBacks()

    def chance(self, unit: RecoveryUnit) -> float:
        """Probability that the conversation's next request resumes at `unit`. A branch point counts in full."""
        thread = unit.thread
        below, is_branch = unit.below
        if thread is None or is_branch:
            return 1.0
        served = self._served(thread, unit)
        return served if below is None else max(served - self._served(thread, below), 0.0)

    def _served(self, thread: Thread, unit: RecoveryUnit) -> float:
        if not thread.running and unit.position >= thread.end:
            return self.turn_backs.goes_on
        return self.turn_backs.served(thread.prompt_tokens - unit.position)

    def follow(self, unit: RecoveryUnit, path_end: int, *, ended: bool, nearest: bool) -> bool:
        """Nothing to follow: what counts of the path is its thread's."""
        return False

    def learn(self, thread: Thread, rollback_tokens: int, population: int, now: float) -> bool:
        self.turn_backs.add(thread, rollback_tokens)
        due = super().learn(thread, rollback_tokens, population, now)
        if due:
            self.turn_backs.publish()
        return due
