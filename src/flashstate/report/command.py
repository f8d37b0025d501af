"""The command `flashstate report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashstate.console import fail
from flashstate.report.simulation import ReportError, read_simulation
from flashstate.report.simulation_html import write_simulations


def report(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULTS", help="Results of `flashstate simulate --json`.")
    ],
    html: Annotated[Path, typer.Option(metavar="OUT", help="The page to write: one file, needs no network.")],
) -> None:
    """Make one page of simulations: hit rates, misses and their reasons over load, in tables and plots."""
    for path in results:
        if html.exists() and path.exists() and html.samefile(path):
            fail(f"{html}: holds results; name another file with --html")
    try:
        write_simulations(html, [read_simulation(path) for path in results])
    except ReportError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or html}: {error.strerror or error}")
    typer.echo(f"report: {html}")
