"""JSON lines that may be cut off, and values in them that may be anything."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from flashstate.files import check_regular

_MOST: Final = 1e15
"""No count and no time is larger, so that sums stay finite."""

Row = Mapping[str, Any]


class LineError(ValueError):
    """A row that is not what it should be: the field and what is wrong with it."""


def rows(path: Path) -> Iterator[Row | None]:
    """The objects of a file, line by line, empty lines aside; None for a line that is none. Raises OSError.

    A run that was killed leaves half a line at the end: that is a line that is none.
    """
    check_regular(path)
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.strip():
                yield _object(line)


def number(row: Row, name: str, most: float = _MOST) -> float:
    """A number from 0 to `most`. Raises LineError."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LineError(f"{name} is {_shown(value)}: must be a number")
    if not (math.isfinite(value) and 0 <= value <= most):
        raise LineError(f"{name} is {_shown(value)}: must be from 0 to {most:g}")
    return float(value)


def optional_number(row: Row, name: str) -> float | None:
    """The same, or None where it is null or missing. Raises LineError."""
    return None if row.get(name) is None else number(row, name)


def whole(row: Row, name: str) -> int:
    """A count. Raises LineError."""
    return round(number(row, name))


def optional_whole(row: Row, name: str) -> int | None:
    """A count, or None where it is null or missing. Raises LineError."""
    return None if row.get(name) is None else whole(row, name)


def text(row: Row, name: str, otherwise: str = "") -> str:
    """What is there as text on one line; a number counts as its digits."""
    value = row.get(name)
    return otherwise if value is None else " ".join(str(value).split())[:200]


def part(row: Row, name: str) -> Row:
    """An object inside it. Raises LineError."""
    value = row.get(name)
    if not isinstance(value, dict):
        raise LineError(f"{name} is {_shown(value)}: must be an object")
    return value


def counts(row: Row, name: str) -> Mapping[str, int] | None:
    """Counts by name, those that are null left out; None where there are none. Raises LineError."""
    if row.get(name) is None:
        return None
    inner = part(row, name)
    found = {key: count for key in inner if (count := optional_whole(inner, key)) is not None}
    return found or None


def _object(line: str) -> Row | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _shown(value: object) -> str:
    shown = ascii(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."
