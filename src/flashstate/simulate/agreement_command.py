"""The command `flashstate check-log`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashstate.simulate.agreement import LogError, check_log


def check_event_log(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="What `flashstate serve --event-log` wrote.")],
) -> None:
    """Replay an engine's event log in the simulator: does every request resume at the same position?"""
    try:
        agreement = check_log(log)
    except OSError as error:
        _fail(f"{log}: {error.strerror or error}")
    except LogError as error:
        _fail(str(error))
    else:
        typer.echo(agreement.verdict())
        raise typer.Exit(0 if agreement.first is None else 1)


def _fail(message: str) -> None:
    typer.secho(f"flashstate: {message}", fg="red", err=True)
    raise typer.Exit(2)
