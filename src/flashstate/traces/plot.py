"""Distributions of several sets of sessions as one drawing: SVG, alone or in a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Final

import numpy as np

from flashstate.report.plot import Point, line_plot, linear_axis, log_axis
from flashstate.traces.session import TraceError
from flashstate.traces.stats.collect import Collector

SUFFIXES: Final = (".svg", ".html")

_PANELS: Final = {
    "prompt tokens": "prompt, tokens",
    "prompt tokens not in the previous prompt": "prompt tokens not in the previous prompt",
    "output tokens": "output, tokens",
    "gap t[i]-t[i-1]-api_time[i-1]": "wait before a turn, seconds",
    "cut tokens": "tokens that an edit cuts back",
    "requests per trace": "requests of a trace",
}
_POINTS: Final = 200
_MOST_TICKS: Final = 10
_WIDTH: Final = 480
_HEIGHT: Final = 300
_LEGEND: Final = 30
_COLOURS: Final = ("#2a78d6", "#d9822b", "#2e9e5b", "#b04ad0", "#c8373d", "#5f6b76")
_STYLE: Final = """
text { font: 12px system-ui, sans-serif; fill: #333 } .title { font-weight: 600 }
.grid { stroke: #ddd } .line { fill: none; stroke-width: 1.8 } .back { fill: #fff }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .grid { stroke: #444 } .back { fill: #16181b } }
"""


def write_plot(path: Path, sets: Mapping[str, Collector]) -> None:
    """Draws the share of requests, edits or traces up to each value. Raises TraceError: no such format, or file."""
    check_plot(path)
    drawing = _drawing(sets)
    page = f'<!doctype html><meta charset="utf-8"><title>Traces</title>{drawing}\n'
    try:
        path.write_text(drawing if path.suffix == ".svg" else page, encoding="utf-8")
    except OSError as error:
        raise TraceError(str(path), "", error.strerror or str(error)) from None


def check_plot(path: Path) -> None:
    """Raises TraceError for a format that we do not draw."""
    if path.suffix not in SUFFIXES:
        raise TraceError(str(path), "", f"must end with {' or '.join(SUFFIXES)}")


def _drawing(sets: Mapping[str, Collector]) -> str:
    panels = [_panel(name, title, sets) for name, title in _PANELS.items()]
    rows = -(-len(panels) // 2)
    width, height = 2 * _WIDTH, _LEGEND + rows * _HEIGHT
    colours = [f".set{n} {{ stroke: {_COLOURS[n % len(_COLOURS)]} }}" for n in range(len(sets))]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<style>{_STYLE}{' '.join(colours)}</style>",
        f'<rect class="back" width="{width}" height="{height}"/>',
    ]
    for number, name in enumerate(sets):
        x = 20 + number * width // (len(sets) + 1)
        parts.append(f'<path class="line set{number}" d="M{x} 15h24"/>')
        parts.append(f'<text x="{x + 30}" y="19">{escape(name)}</text>')
    for number, panel in enumerate(panels):
        at = f'x="{number % 2 * _WIDTH}" y="{_LEGEND + number // 2 * _HEIGHT}"'
        parts.append(panel.replace("<svg", f'<svg {at} width="{_WIDTH}" height="{_HEIGHT}"', 1))
    return "\n".join([*parts, "</svg>"])


def _panel(name: str, title: str, sets: Mapping[str, Collector]) -> str:
    """Values below 1 stand at 1: the axis is logarithmic."""
    lines = {
        f"set{number}": _shares(collected.series[name]) for number, collected in enumerate(sets.values())
    }
    x = log_axis(title, [value for line in lines.values() for value, _ in line], _short)
    if len(x.ticks) > _MOST_TICKS:
        x = replace(x, ticks=[tick for tick in x.ticks if math.log10(tick).is_integer()])
    return line_plot(f"Share up to each value: {title}", x, linear_axis("", [1.0], "{:.0%}".format), lines)


def _shares(values: Sequence[float]) -> list[Point]:
    if not len(values):
        return []
    shares = np.linspace(0, 1, _POINTS + 1)
    at = np.maximum(np.quantile(np.asarray(values), shares, method="inverted_cdf"), 1.0)
    return [(float(value), float(share)) for value, share in zip(at, shares, strict=True)]


def _short(value: float) -> str:
    for unit, name in ((1e6, "M"), (1e3, "K")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"
