"""The results of `flashstate simulate` as tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

import rich.table
from rich.console import Group, RenderableType
from rich.text import Text

from flashstate.report.simulation import BOUNDS, OURS, Simulation
from flashstate.report.simulation_view import Cell, Table, notes, tables


def simulation_tables(simulation: Simulation) -> RenderableType:
    """What there is to say in a terminal."""
    return Group(*_parts(simulation))


def _parts(simulation: Simulation) -> Iterator[RenderableType]:
    for number, table in enumerate(tables(simulation)):
        yield Text("")
        yield Text.assemble((table.title, "bold"), f": {table.hint}")
        yield _drawn(table)
        if number == 0 and (said := notes(simulation)):
            yield Text(" ".join(said), style="dim")


def _drawn(table: Table) -> rich.table.Table:
    drawn = rich.table.Table(box=None, pad_edge=False, padding=(0, 1), collapse_padding=table.is_narrow)
    drawn.add_column("", no_wrap=True)
    for column in table.columns:
        drawn.add_column(column, justify="right")
    for row in table.rows:
        style = "bold green" if row.name == OURS else "dim" if row.name in BOUNDS or not row.is_policy else ""
        drawn.add_row(
            Text(row.name, style=style),
            *(_text(cell) for cell in row.cells),
            style="" if row.is_policy else "dim",
        )
    return drawn


def _text(cell: Cell) -> Text:
    text = Text(cell.text, style="bold green" if cell.is_best else "")
    if cell.spread:
        text.append(f" {cell.spread}", style="dim")
    return text
