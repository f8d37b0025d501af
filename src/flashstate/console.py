"""What every command does alike."""

from __future__ import annotations

from typing import Final, NoReturn

import typer

CTRL_C: Final = 130
"""The exit code after Ctrl-C, as of shells."""


def fail(message: str, code: int = 1) -> NoReturn:
    """End with one line on stderr."""
    typer.secho(f"flashstate: {message.removeprefix('flashstate ')}", fg="red", err=True)
    raise typer.Exit(code)
