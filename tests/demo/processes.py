"""What tests need to know about processes."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def fake_command(port: int, fault: str = "none", number: int = 0) -> list[str]:
    return [sys.executable, "-m", "tests.demo.fake_server", str(port), fault, str(number)]


def fake_environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def alive(pid: int) -> bool:
    """Whether a process is running (one that ended and waits to be collected is not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_in(log: Path) -> list[int]:
    """The children that a fake server said it had."""
    return [int(pid) for pid in re.findall(r"child (\d+)", log.read_text())] if log.exists() else []


def children_of(parent: int) -> list[int]:
    """The processes that a process has started and that are there."""
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def command_of(pid: int) -> str:
    """A process's command line."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def all_gone(pids: list[int], limit_s: float = 5.0) -> bool:
    """Waits for processes to end."""
    deadline = time.monotonic() + limit_s
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
