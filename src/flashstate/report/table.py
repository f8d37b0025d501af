"""The comparison as a table in the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from flashstate.report.figures import ROWS, headline
from flashstate.report.results import ENGINES, FLASHSTATE, Results


def comparison(results: Results, captions: Mapping[str, str]) -> RenderableType:
    """Engines side by side and a line of ratios. `captions` says below an engine's name how it was set."""
    names = [name for name in ENGINES if name in results.engines]
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True, padding=(0, 2))
    table.add_column("")
    for name in names:
        style = "bold green" if name == FLASHSTATE else ""
        title = Text.assemble((name, style), ("\n" + captions.get(name, ""), "dim"))
        table.add_column(title, justify="right", style=style)
    for row in ROWS:
        table.add_row(row.label, *(row.show(results.engines[name]) for name in names))
    line = headline(results)
    return Group(table, Text(""), Text(line, style="bold")) if line else Group(table)
