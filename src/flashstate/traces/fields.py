"""A JSON object whose fields are checked as they are read."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Mapping
from typing import Any, Final

from flashstate.traces.session import TraceError

MOST: Final = 2**31 - 1
"""The largest count of tokens, blocks or seconds. Our Parquet encoding holds 32 bits."""
MOST_ID: Final = 2**40
"""The largest block id. Finer ids are made of coarse ones, so 64 bits must have room."""


def parse(text: bytes, file: str) -> object:
    """Parses JSON in any of its encodings. Raises TraceError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(file, "", f"not JSON ({error})") from None


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
        return self._printable(name, value)

    def maybe_text(self, name: str) -> str:
        """A text; empty where there is none."""
        value = self.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(name, f"must be a text, not {_kind(value)}")
        return self._printable(name, value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty where there is none."""
        if self.get(name) is None:
            return ()
        found: list[str] = []
        for i, item in enumerate(self._list(name)):
            if not isinstance(item, str):
                raise self.error(f"{name}[{i}]", f"must be a text, not {_kind(item)}")
            found.append(self._printable(f"{name}[{i}]", item))
        return tuple(found)

    def _printable(self, name: str, value: str) -> str:
        """Names are printed and written to files; half a surrogate pair could be neither."""
        if not value.isprintable():
            raise self.error(name, f"must be printable, not {_short(ascii(value))}")
        return sys.intern(value)

    def seconds(self, name: str) -> float:
        """A finite number, 0 or more."""
        value = self._need(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"must be a number, not {_kind(value)}")
        if not 0 <= value < float("inf"):
            raise self.error(name, f"must be a finite number, 0 or more, not {_short(value)}")
        if value > MOST:
            raise self.error(name, f"must be {MOST} or less, not {_short(value)}")
        return float(value)

    def maybe_seconds(self, name: str) -> float | None:
        """A finite number, 0 or more; None where there is none."""
        return None if self.get(name) is None else self.seconds(name)

    def count(self, name: str, least: int = 0) -> int:
        """A whole number from `least` to MOST."""
        value = self._need(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"must be a whole number, not {_kind(value)}")
        if value < least:
            raise self.error(name, f"must be {least} or more, not {_short(value)}")
        if value > MOST:
            raise self.error(name, f"must be {MOST} or less, not {_short(value)}")
        return value

    def maybe_count(self, name: str) -> int | None:
        """A whole number from 0 to MOST; None where there is none."""
        return None if self.get(name) is None else self.count(name)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._need(name)
        if not isinstance(value, bool):
            raise self.error(name, f"must be true or false, not {_kind(value)}")
        return value

    def ids(self, name: str) -> array[int]:
        """A list, or an array, of block ids: whole numbers from 0 to MOST_ID."""
        value = self._need(name)
        if isinstance(value, array):
            if value and not 0 <= min(value) <= max(value) <= MOST_ID:
                raise self.error(name, f"holds an id that is not from 0 to {MOST_ID}")
            return value
        items: list[Any] = self._list(name)
        # There are millions of ids: each is looked at only where one is wrong.
        if set(map(type, items)) <= {int} and (not items or 0 <= min(items) <= max(items) <= MOST_ID):
            return array("q", items)
        for i, item in enumerate(items):
            if isinstance(item, bool) or not isinstance(item, int):
                raise self.error(f"{name}[{i}]", f"must be a whole number, not {_kind(item)}")
            if not 0 <= item <= MOST_ID:
                raise self.error(f"{name}[{i}]", f"must be from 0 to {MOST_ID}, not {_short(item)}")
        raise AssertionError("one of them is wrong")

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
    return names.get(type(value)) or f"the number {_short(value)}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
