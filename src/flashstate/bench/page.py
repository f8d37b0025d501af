"""The comparison as a page: what `flashstate report` makes of the records."""

from __future__ import annotations

from pathlib import Path

from flashstate.bench.options import Options
from flashstate.bench.result import Results
from flashstate.economics.options import chosen_prices
from flashstate.report.page import write_page
from flashstate.report.runs.figures import Costs
from flashstate.report.runs.part import runs_part
from flashstate.report.runs.read import read_runs
from flashstate.report.runs.request import Run


def write_report(options: Options, results: Results) -> Path:
    """Writes and returns DIR/report.html: the first repeat of every engine and load that there is."""
    order = [engine.name for engine in options.engines]
    keys = sorted(
        (key for key in results.runs if key.repeat == 0 and key.engine in order),
        key=lambda key: (order.index(key.engine), key.sessions),
    )
    runs: list[Run] = []
    for key in keys:
        runs += read_runs(key.records(options.out), key.engine) or []
    page = options.out / "report.html"
    write_page(page, [], runs_part(runs, Costs(chosen_prices(None, None), 1)) if runs else None)
    return page
