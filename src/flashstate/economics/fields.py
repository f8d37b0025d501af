"""Fields of a file that anybody may have edited, checked as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, Self

_SHOWN: Final = 40
_MOST_WHOLE: Final = 10**15
"""Far below what a float cannot hold."""


class FieldError(ValueError):
    """A field that is missing or of the wrong kind. One line, which names it from the top of the file."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of an object at `place`, such as `engines.stock`; empty at the top. All methods raise FieldError.

    A field that is null is missing.
    """

    values: Mapping[str, object]
    place: str = ""

    @classmethod
    def of(cls, value: object, place: str = "") -> Self:
        """The fields of what must be an object."""
        if not isinstance(value, Mapping):
            raise FieldError(f"{place or 'the file'} is {_shown(value)}: must hold named fields")
        for name in value:
            if not isinstance(name, str) or not name.isprintable():
                raise FieldError(
                    f"{place or 'the file'}: name {_shown(name)}: must be text on one line; quote it"
                )
        return cls(value, place)

    def path(self, name: str) -> str:
        """A field's name from the top of the file."""
        return f"{self.place}.{name}" if self.place else name

    def has(self, name: str) -> bool:
        """Whether the field is there."""
        return self.values.get(name) is not None

    def get(self, name: str) -> object:
        """A value of any kind."""
        if not self.has(name):
            raise FieldError(f"{self.path(name)} is missing")
        return self.values[name]

    def part(self, name: str) -> Self:
        """The fields of an object inside."""
        return self.of(self.get(name), self.path(name))

    def number(self, name: str) -> float:
        """A number; too large a one is infinite."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._not(name, "a number")
        try:
            return float(value)
        except OverflowError:
            return inf if value > 0 else -inf

    def whole(self, name: str) -> int:
        """A whole number."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MOST_WHOLE:
            raise self._not(name, f"a whole number, at most {_MOST_WHOLE:,} either side of 0")
        return value

    def text(self, name: str) -> str:
        """Text on one line that says something."""
        value = self.get(name)
        if not isinstance(value, str) or not value.strip() or not value.strip().isprintable():
            raise self._not(name, "text on one line")
        return value.strip()

    def _not(self, name: str, kind: str) -> FieldError:
        return FieldError(f"{self.path(name)} is {_shown(self.values[name])}: must be {kind}")


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
