"""The folder that a comparison is written to, by one command at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from flashstate.bench.error import BenchError
from flashstate.files import hold


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Makes `folder` and keeps others out of it. Raises BenchError if one is there already, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        if not hold(lock):
            raise BenchError(
                f"--out {folder}: another comparison is writing there; wait for its end, or name another folder"
            )
        yield
