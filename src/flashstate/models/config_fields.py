"""Fields of a config.json, checked as they are read: a file may hold anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

Config = Mapping[str, Any]

_MOST: Final = 2**32
"""More than any count in a config; products of a few such numbers still fit a float."""
_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class Fields:
    """Reads fields by name. A field that is null is missing. All methods raise ValueError with one line."""

    values: Config

    def has(self, name: str) -> bool:
        """Whether the field is there."""
        return self.values.get(name) is not None

    def whole(self, *names: str, least: int = 1) -> int:
        """A whole number, called by the first of `names` that is there."""
        for name in names:
            if self.has(name):
                value = self.values[name]
                if type(value) is not int or not least <= value <= _MOST:
                    raise ValueError(f"{name} is {_shown(value)}: must be a whole number, {least} to {_MOST}")
                return value
        raise ValueError(f"{names[0]} is missing")

    def items(self, *names: str) -> Sequence[Any]:
        """A list or a string, called by the first of `names` that is there."""
        for name in names:
            if self.has(name):
                value = self.values[name]
                if not isinstance(value, list | tuple | str):
                    raise ValueError(f"{name} is {_shown(value)}: must be a list")
                return value
        raise ValueError(f"{names[0]} is missing")

    def part(self, name: str) -> Self:
        """The fields of an object inside."""
        if not self.has(name):
            raise ValueError(f"{name} is missing")
        value = self.values[name]
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} is {_shown(value)}: must be an object")
        return type(self)(value)


def _shown(value: object) -> str:
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**_SHOWN else "a huge number"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
