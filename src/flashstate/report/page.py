"""Measured runs and simulations as one HTML page that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flashstate.files import write_text
from flashstate.report.html import environment
from flashstate.report.runs.part import RunsPart
from flashstate.report.simulation import BOUNDS, OURS, Simulation
from flashstate.report.simulation_html import simulation_part


def write_page(path: Path, simulations: Sequence[Simulation], runs: RunsPart | None = None) -> None:
    """Writes the page, runs first, then a part for each simulation; whole or not at all. Raises OSError."""
    parts = [simulation_part(simulation) for simulation in simulations]
    most = max([len(part.lines) for part in parts] + [len(runs.lines) if runs else 0])
    page = environment().get_template("page.html.j2")
    title = "FlashState simulation" if runs is None else "FlashState report"
    write_text(path, page.render(title=title, runs=runs, parts=parts, most=most, ours=OURS, bounds=BOUNDS))
