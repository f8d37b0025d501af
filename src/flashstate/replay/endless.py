"""What made workloads without an end have in common."""

from __future__ import annotations

from dataclasses import dataclass

from flashstate.replay.recorded import Scale


@dataclass(frozen=True)
class EndlessWork:
    """`sessions` at a time, begun over `spread_s` seconds, each with one piece of work after another, for ever."""

    sessions: int
    scale: Scale
    seed: int
    spread_s: float = 20.0

    @property
    def requests(self) -> None:
        """It goes on for ever."""
        return None

    def start_s(self, session: int) -> float:
        """Sessions begin one after another."""
        return self.spread_s * session / self.sessions
