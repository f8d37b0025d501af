"""The command `flashstate report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from flashstate.console import fail, reason
from flashstate.economics.options import PresetOption, PricesOption, chosen_prices
from flashstate.economics.serving import MOST_GPUS
from flashstate.report.page import write_page
from flashstate.report.runs.figures import Costs
from flashstate.report.runs.part import runs_part
from flashstate.report.runs.read import labelled, read_runs
from flashstate.report.runs.request import Run
from flashstate.report.simulation import ReportError, Simulation, read_simulation
from flashstate.traces.read import read_sessions
from flashstate.traces.session import TraceError


def report(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULTS",
            help="FILE or NAME=FILE: records of `flashstate replay`, AIPerf's profile_export.jsonl, a result of "
            "`vllm bench serve --save-detailed`, or of `flashstate simulate --json`. Files of one NAME: one engine "
            "at several loads.",
        ),
    ],
    html: Annotated[Path, typer.Option(metavar="OUT", help="The page to write: one file, needs no network.")],
    gpus: Annotated[int, typer.Option(metavar="N", help="GPUs of one engine, for its profit.")] = 1,
    prices: PricesOption = None,
    preset: PresetOption = None,
) -> None:
    """Make one page of measured runs and simulations: engines side by side, sessions, misses and their reasons."""
    if not 1 <= gpus <= MOST_GPUS:
        fail(f"--gpus {gpus}: must be from 1 to {MOST_GPUS:,}, the GPUs of one engine")
    try:
        costs = Costs(chosen_prices(prices, preset), gpus)
        files = labelled(results)
        for _, path in files:
            if html.exists() and path.exists() and html.samefile(path):
                fail(f"{html}: holds results; name another file with --html")
        runs, simulations = _read(files)
        write_page(html, simulations, runs_part(runs, costs) if runs else None)
    except (ReportError, ValueError, OSError) as error:
        fail(reason(error, html))
    typer.echo(f"report: {html}")


def _read(files: Sequence[tuple[str, Path]]) -> tuple[list[Run], list[Simulation]]:
    """Raises ReportError."""
    runs: list[Run] = []
    simulations: list[Simulation] = []
    for name, path in files:
        try:
            found = read_runs(path, name)
            if found is None:
                simulations.append(read_simulation(path))
            else:
                runs += found
        except ReportError:
            if _is_trace(path):
                raise ReportError(
                    f"{path}: is a trace, not the records of a run: `flashstate trace stats` says what is in it; "
                    "`flashstate replay` or `simulate` plays it and writes what can be shown here"
                ) from None
            raise
    return runs, simulations


def _is_trace(path: Path) -> bool:
    if not (path.is_file() or path.is_dir()):
        return False
    try:
        return next(read_sessions(path), None) is not None
    except TraceError:
        return False
