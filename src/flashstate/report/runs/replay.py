"""What `flashstate replay` writes, a log of events, and the demo's records: one JSON object a line, fields by name.

In the log the first line says what the run is, and seconds count from the start of each part: a run that was resumed
has several. Here the parts follow each other.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from flashstate.report.runs.lines import (
    LineError,
    Row,
    counts,
    number,
    optional_number,
    optional_whole,
    part,
    text,
    whole,
)
from flashstate.report.runs.request import MAIN, Request

SOURCE: Final = "flashstate replay"


def is_record(row: Row) -> bool:
    """Whether it looks like one of ours."""
    return "session" in row and "prompt_tokens" in row and "start_s" in row


class Log:
    """Takes lines in order: events that frame the run, and its requests."""

    def __init__(self) -> None:
        self.opened_s: float | None = None
        """When measuring first began."""
        self.missed_tokens: Counter[str] | None = None
        """As the server counted them while measuring, by reason."""
        self.sessions: int | None = None
        """As many as were asked for at a time."""
        self.stopped = ""
        """Why it ended before its time."""
        self._knows_ideal = True
        self._begun_s = self._last_s = self._measured_s = 0.0
        self._part_opened_s: float | None = None

    @property
    def measured_s(self) -> float | None:
        """How long was measured; None where the file does not say."""
        return None if self.opened_s is None else self._measured_s + self._still_open_s

    def takes(self, row: Row | None) -> bool:
        """Whether it was an event other than a request. A damaged one is not."""
        if row is None:
            return False
        event = row.get("event")
        try:
            if row.get("kind") == SOURCE:
                self._head(part(row, "parameters"))
                return True
            return event is not None and event != "request" and self._event(event, row)
        except LineError:
            return False

    def record(self, row: Row) -> Request:
        """One line's request. Raises LineError. Fields that it does not know are left alone."""
        start_s = self._begun_s + number(row, "start_s")
        end_s = max(self._begun_s + number(row, "end_s"), start_s)
        session, _, agent = text(row, "session").partition("/")
        if "play" in row:  # a trace may be played twice at a time
            session = f"{session} #{text(row, 'play')}"
        error = row.get("error")
        request = Request(
            session=session,
            agent=text(row, "agent", agent or MAIN),
            turn=whole(row, "turn"),
            start_s=start_s,
            first_s=None if (ttft_s := optional_number(row, "ttft_s")) is None else start_s + ttft_s,
            end_s=end_s,
            prompt_tokens=whole(row, "prompt_tokens"),
            output_tokens=whole(row, "output_tokens"),
            cached_tokens=optional_whole(row, "cached_tokens") if row.get("says_cached", True) else None,
            ideal_tokens=optional_whole(row, "ideal_tokens") if self._knows_ideal else None,
            missed_tokens=counts(row, "missed_tokens"),
            kind=text(row, "kind"),
            error=None if error is None else text(row, "error"),
            measured=bool(row.get("measured", True)),
        )
        self._last_s = max(self._last_s, end_s)
        return request

    @property
    def _still_open_s(self) -> float:
        """A part that was killed is measured to its last request."""
        return 0.0 if self._part_opened_s is None else max(0.0, self._last_s - self._part_opened_s)

    def _head(self, parameters: Row) -> None:
        # Chats are sent as text: the client does not know which tokens it repeats.
        self._knows_ideal = not parameters.get("chat")
        self.sessions = optional_whole(parameters, "sessions")

    def _event(self, event: object, row: Row) -> bool:
        if event == "started":
            self._measured_s += self._still_open_s
            self._begun_s, self._part_opened_s = self._last_s, None
        elif event == "opened":
            self._part_opened_s = self._begun_s + number(row, "s")
            self.opened_s = self._part_opened_s if self.opened_s is None else self.opened_s
        elif event == "closed":
            closed_s, missed = self._begun_s + number(row, "s"), counts(row, "missed_tokens")
            if self._part_opened_s is not None:
                self._measured_s += max(0.0, closed_s - self._part_opened_s)
                self._part_opened_s = None
            self.stopped = text(row, "stopped")
            if missed is not None:
                self.missed_tokens = (self.missed_tokens or Counter()) + Counter(missed)
            self._last_s = max(self._last_s, closed_s)
        return True
