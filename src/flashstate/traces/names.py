"""Names of sessions."""

from __future__ import annotations


def unique(name: str, taken: set[str]) -> str:
    """The name, or with a number behind it if it is taken; then that is taken, too."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}#{number}"
    taken.add(found)
    return found
