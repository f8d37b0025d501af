"""Where and when a figure was measured."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path


def machine() -> str:
    """One line: the processor, usable cores, Python, and the day."""
    cores = len(os.sched_getaffinity(0))
    today = datetime.now(UTC).date().isoformat()
    return f"{_processor()}, {cores} cores, Python {platform.python_version()}, {today}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
