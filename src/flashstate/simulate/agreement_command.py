"""The command `flashstate check-log`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashstate.console import fail
from flashstate.simulate.agreement import LogError, check_log


def check_event_log(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="What `flashstate serve --event-log` wrote.")],
) -> None:
    """Replay an engine's event log in the simulator: does every request resume at the same position?"""
    try:
        agreement = check_log(log)
    except OSError as error:
        fail(f"{log}: {error.strerror or error}", 2)
    except LogError as error:
        fail(str(error), 2)
    typer.echo(agreement.verdict())
    raise typer.Exit(0 if agreement.first is None else 1)
