"""How much of its time a server computes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np

_TICKS_S: Final = os.sysconf("SC_CLK_TCK")
_GROUP, _USER, _SYSTEM = 2, 11, 12
"""Fields of /proc/PID/stat after the name, counted from 0."""


class Busy:
    """Processor time of a process group's busiest process, read now and then: for a vLLM server, its engine's.

    The engine's model runs on one thread here (see `launch`), so that 1 second a second means it never waits.
    """

    def __init__(self, group: int) -> None:
        self._group = group
        self._at_s: list[float] = []
        self._used: list[dict[int, float]] = []

    def read(self, now_s: float) -> None:
        """Takes a reading. `now_s`: on any clock, ever later."""
        self._at_s.append(now_s)
        self._used.append(_used(self._group))

    def share(self, opened_s: float, closed_s: float) -> float | None:
        """Processor seconds a second between two times, of the process that used most; None if nobody looked."""
        if len(self._at_s) < 2 or closed_s <= opened_s:
            return None
        found = 0.0
        for process in self._used[-1]:
            used = [reading.get(process, 0.0) for reading in self._used]
            opened, closed = np.interp([opened_s, closed_s], self._at_s, used)
            found = max(found, float(closed - opened))
        return found / (closed_s - opened_s)


def _used(group: int) -> dict[int, float]:
    """Seconds of processor time by process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # has just ended
        if int(fields[_GROUP]) == group:
            found[int(path.parent.name)] = (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS_S
    return found
