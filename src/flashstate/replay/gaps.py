"""How long an agent waits between the end of an answer and its next request: readings of a recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from flashstate.traces.session import Turn

Reading = Literal["think-only", "original", "api-scaled", "corrected"]
READINGS: Final[tuple[Reading, ...]] = ("think-only", "original", "api-scaled", "corrected")

GAP_CAP_S: Final = 300.0
"""Longer gaps count as this long, before scaling."""


@dataclass(frozen=True)
class Gaps:
    """Which reading. All are waits from end to start, in seconds; the first three are named as kv-cache-tester's.

    think-only: as recorded, from the end of the answer before.
    original: that and the time the recorded server took for the answer before (from start to start).
    api-scaled: that and `api_scale` times the time the recorded server took for the answer before.
    corrected: as recorded, less the time the recorded server took for the request itself: many recordings hold
    a hidden second call of that length in every gap.
    """

    reading: Reading = "think-only"
    api_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.reading not in READINGS:
            raise ValueError(f"gaps {self.reading!r}: must be one of {', '.join(READINGS)}")
        if not 0 <= self.api_scale < float("inf"):
            raise ValueError(f"api time scale {self.api_scale}: must be 0 or more")

    def wait_s(self, turn: Turn, before: Turn | None) -> float:
        """The wait for `turn`, capped. `before`: the turn whose end it starts from; None for a session's first."""
        return min(self._uncapped_s(turn, before), GAP_CAP_S)

    def _uncapped_s(self, turn: Turn, before: Turn | None) -> float:
        if self.reading == "corrected":
            return max(0.0, turn.gap_s - (turn.api_s or 0.0))
        before_s = (before.api_s or 0.0) if before is not None else 0.0
        if self.reading == "original":
            return turn.gap_s + before_s
        if self.reading == "api-scaled":
            return turn.gap_s + self.api_scale * before_s
        return turn.gap_s
