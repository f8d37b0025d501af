"""A JSON object whose fields are checked as they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping

from flashstate.traces.session import TraceError

MOST = 1 << 40
"""More than any trace has blocks."""


class Fields:
    """Typed access to one object. A TraceError names the file and the field, from the file's root."""

    def __init__(self, file: str, where: str, value: object) -> None:
        self._file, self._where = file, where
        if not isinstance(value, Mapping):
            raise TraceError(file, where, f"must be an object, not {_kind(value)}")
        self._fields = value

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def get(self, name: str) -> object:
        """The raw value, None where there is none."""
        return self._fields.get(name)

    def error(self, name: str, reason: str) -> TraceError:
        """The error to raise about a field."""
        return TraceError(self._file, f"{self._where}.{name}" if self._where else name, reason)

    def _need(self, name: str) -> object:
        if name not in self._fields:
            raise self.error(name, "is missing")
        return self._fields[name]

    def text(self, name: str) -> str:
        """A text that is not empty."""
        value = self._need(name)
        if not isinstance(value, str) or not value:
            raise self.error(name, f"must be a name, not {_kind(value)}")
        return value

    def seconds(self, name: str) -> float:
        """A finite number, 0 or more."""
        value = self._need(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"must be a number, not {_kind(value)}")
        if not math.isfinite(value) or value < 0:
            raise self.error(name, f"must be a finite number, 0 or more, not {value}")
        return float(value)

    def count(self, name: str, least: int = 0) -> int:
        """A whole number, `least` or more."""
        value = self._need(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"must be a whole number, not {_kind(value)}")
        if value < least:
            raise self.error(name, f"must be {least} or more, not {value}")
        return value

    def counts(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers from 0 on, below MOST."""
        value = self._list(name)
        for i, item in enumerate(value):
            if isinstance(item, bool) or not isinstance(item, int):
                raise self.error(f"{name}[{i}]", f"must be a whole number, not {_kind(item)}")
            if not 0 <= item < MOST:
                raise self.error(f"{name}[{i}]", f"must be from 0 to {MOST - 1}")
        return tuple(value)  # type: ignore[arg-type]  # checked just above

    def records(self, name: str) -> list[Fields]:
        """A list of objects."""
        where = f"{self._where}.{name}" if self._where else name
        return [Fields(self._file, f"{where}[{i}]", item) for i, item in enumerate(self._list(name))]

    def _list(self, name: str) -> list[object]:
        value = self._need(name)
        if not isinstance(value, list):
            raise self.error(name, f"must be a list, not {_kind(value)}")
        return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), f"the number {value}")
