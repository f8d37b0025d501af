"""What `flashstate simulate` says in the terminal, beside its progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from flashstate.report.simulation import simulation
from flashstate.report.simulation_table import simulation_tables
from flashstate.simulate.presets import preset, preset_names
from flashstate.simulate.result import RunKey
from flashstate.simulate.results_file import Results, ResultsFile
from flashstate.simulate.setup import ENGINE, Setup
from flashstate.simulate.systems import DEFAULT_SYSTEMS, systems

_GEOMETRY: Final = "{0.blocks:,} blocks of {0.block_tokens:,} tokens, {0.checkpoint_blocks} a checkpoint"


def say(console: Console, line: str, style: str = "") -> None:
    """One line, as it is."""
    console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def introduce(setup: Setup, keys: Sequence[RunKey], missing: Sequence[RunKey], console: Console) -> None:
    """What will be run, on what."""
    workload, geometry = setup.workload, setup.geometry
    gone = ", ".join(f"{count:,} {reason}" for reason, count in workload.left_out.items())
    left_out = f" (left out: {gone})" if gone else ""
    done = f", {len(keys) - len(missing)} of them done already" if len(missing) < len(keys) else ""
    served = ""
    if setup.clock == ENGINE:
        guard = "" if setup.serving.guard is None else f", guard {setup.serving.guard:g}"
        served = f", {setup.serving.order} order{guard}"
    say(console, f"{len(workload.trajectories):,} sessions of {workload.requests:,} requests{left_out}")
    say(console, f"{geometry.name}: {_GEOMETRY.format(geometry)}")
    say(console, f"{len(keys)} runs{done}, {setup.clock} clock, {setup.rules.gaps} gaps{served}")


def show_results(results: Results, asked: set[RunKey], console: Console) -> None:
    """Tables of the runs that were asked for, and where they are kept."""
    document = results.document()
    document["results"] = [row for row in document["results"] if RunKey(**row["key"]) in asked]
    if document["results"]:
        console.print(simulation_tables(simulation(document)), highlight=False)
    if isinstance(results, ResultsFile) and results.path.exists():
        say(console, f"\nresults: {results.path}")
        say(console, f"a page of them: flashstate report {results.path} --html FILE")


def list_systems(console: Console) -> None:
    """The names that --policy and --geometry know, with a line on each."""
    say(console, "Policies (* run by default)", "bold")
    rows = {f"{name}{'*' if name in DEFAULT_SYSTEMS else ''}": s.title for name, s in systems().items()}
    console.print(_two_columns(rows), highlight=False)
    say(console, "\nGeometries", "bold")
    console.print(
        _two_columns({name: _GEOMETRY.format(preset(name)) for name in preset_names()}), highlight=False
    )


def _two_columns(rows: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    for name, what in rows.items():
        table.add_row(name, what)
    return table
