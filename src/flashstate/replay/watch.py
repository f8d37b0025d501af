"""Keeps an eye on a server during a run: whether it still answers, and whether it is still the same process."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from flashstate.replay.record import Record
from flashstate.urls import without_passwords

Counts = Mapping[str, float]


class Watch:
    """One server. Times in seconds, on any one clock."""

    def __init__(self, url: str, counts: Counts | None = None) -> None:
        self._url, self._counts = url, counts
        self._down_since_s: float | None = None
        self._failed_s = 0.0
        self._last_error = ""
        self._refused = False
        self.restarts = 0

    def saw(self, record: Record, now_s: float) -> None:
        """A request to it has ended."""
        if record.error is None:
            # Nobody listened, now somebody does: another process.
            self.restarts += self._refused
            self._refused, self._down_since_s = False, None
            return
        self._last_error, self._failed_s = record.error, now_s
        self._refused |= record.error_kind == "refused"
        if self._down_since_s is None:
            self._down_since_s = now_s

    def gone(self, limit_s: float) -> str | None:
        """Why not to go on: requests have failed, and none succeeded, over `limit_s` seconds. None if it answers.

        One failure alone, however long ago, tells little of a server that has not been asked since.
        """
        if self._down_since_s is None or self._failed_s - self._down_since_s < limit_s:
            return None
        return f"{without_passwords(self._url)} answered nothing for {limit_s:g} s, last: {self._last_error}"

    def compare(self, counts: Counts | None) -> None:
        """Counters of its /metrics page, later: a process's own counters never fall."""
        before, self._counts = self._counts, counts or self._counts
        if before and counts and any(counts[name] < before[name] for name in counts.keys() & before.keys()):
            self.restarts = max(self.restarts, 1)


def counters(page: str) -> Counts:
    """Every counter of a /metrics page by name and labels. Raises ValueError if it is not such a page."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(page)
        if family.type == "counter"
        for sample in family.samples
        if sample.name.endswith("_total")
    }
