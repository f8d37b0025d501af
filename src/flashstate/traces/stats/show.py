"""The tables in the terminal and as JSON, one column a set of sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flashstate.traces.stats.collect import Collector
from flashstate.traces.stats.figures import SPREAD
from flashstate.traces.stats.tables import REFERENCE, TABLES, Column, distributions

Sets = Mapping[str, Collector]
"""What was collected of each set of sessions, by the set's name."""


def show(sets: Sets, console: Console) -> None:
    """Prints all tables, wider than the terminal where they need it: a figure is never cut."""
    tables = [_side_by_side(title, sets, make) for title, make in TABLES.items()]
    tables.insert(2, _distributions(sets))
    unbound = console.options.update(max_width=10_000)
    console.width = max(console.width, *(console.measure(table, options=unbound).maximum for table in tables))
    for table in tables:
        console.print(table, highlight=False)
        console.print()


def as_json(sets: Sets) -> dict[str, Any]:
    """Every figure by set, table and name; shares are of 1, times in seconds, lengths in tokens."""
    return {
        name: {
            **{title: _values(make(collected)) for title, make in TABLES.items()},
            "Distributions": {label: _values(column) for label, column in distributions(collected).items()},
        }
        for name, collected in sets.items()
    }


def _values(column: Column) -> dict[str, float | None]:
    return {label: figure.value for label, figure in column.items()}


def _side_by_side(title: str, sets: Sets, make: Callable[[Collector], Column]) -> Table:
    columns = [make(collected) for collected in sets.values()]
    table = _table(title)
    for name in sets:
        table.add_column(escape(name), justify="right", no_wrap=True)
    reference = REFERENCE if make is TABLES["Comparison"] else {}
    if reference:
        table.add_column("published", justify="right", style="dim", no_wrap=True)
    for label in dict.fromkeys(label for column in columns for label in column):
        cells = [column[label].text if label in column else "0" for column in columns]
        table.add_row(escape(label), *cells, *([reference.get(label, "")] if reference else []))
    return table


def _distributions(sets: Sets) -> Table:
    table = _table("Distributions (tokens, seconds)")
    if len(sets) > 1:
        table.add_column("", no_wrap=True)
    for name in SPREAD:
        table.add_column(name, justify="right", no_wrap=True)
    spreads = {name: distributions(collected) for name, collected in sets.items()}
    for label in next(iter(spreads.values())):
        for place, (name, columns) in enumerate(spreads.items()):
            cells = [columns[label][figure].text for figure in SPREAD]
            named = [escape(name)] if len(sets) > 1 else []
            table.add_row(escape(label) if place == 0 else "", *named, *cells)
    return table


def _table(title: str) -> Table:
    table = Table(
        box=None, pad_edge=False, padding=(0, 1), title=title, title_justify="left", title_style="bold"
    )
    table.add_column("", no_wrap=True)
    return table
