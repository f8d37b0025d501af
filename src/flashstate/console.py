"""What every command does alike."""

from __future__ import annotations

from typing import NoReturn

import typer


def fail(message: str, code: int = 1) -> NoReturn:
    """End with one line on stderr."""
    typer.secho(f"flashstate: {message.removeprefix('flashstate ')}", fg="red", err=True)
    raise typer.Exit(code)
