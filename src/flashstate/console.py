"""What every command does alike."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

import typer

CTRL_C: Final = 130
"""The exit code after Ctrl-C, as of shells."""
_MOST_DIGITS: Final = 9


def interrupts() -> Iterator[int]:
    """The signals that end a command in good order: Ctrl-C, a `kill`, a terminal that closes.

    Without those that are switched off (nohup; a shell's background): they stay so.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            yield number


def fail(message: str, code: int = 1) -> NoReturn:
    """End with one line on stderr."""
    typer.secho(f"flashstate: {message.removeprefix('flashstate ')}", fg="red", err=True)
    raise typer.Exit(code)


def reason(error: Exception, path: Path | None) -> str:
    """What to say of an error; of an OSError its file (`path`, where it names none) and what the system said."""
    if not isinstance(error, OSError):
        return str(error)
    return f"{error.filename or path}: {error.strerror or error}"


def whole_number(text: str) -> int | None:
    """A whole number that a user gave as text; None if it is none, or has more digits than anyone means."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None
