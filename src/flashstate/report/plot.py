"""Line plots as SVG, coloured by the page's style sheet, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Point = tuple[float, float]

_WIDTH: Final = 480
_HEIGHT: Final = 300
_LEFT: Final = 58
_RIGHT: Final = 14
_TOP: Final = 12
_BOTTOM: Final = 44
_JUST: Final = 1 + 1e-9
"""Room for rounding at the ends of an axis."""


@dataclass(frozen=True)
class Axis:
    """One axis: its title, its bounds, its ticks, and how a tick reads."""

    title: str
    least: float
    most: float
    ticks: Sequence[float]
    show: Callable[[float], str]
    log: bool = False

    def share(self, value: float) -> float:
        """Where a value lies between the bounds, 0 to 1."""
        if self.log:
            value, least, most = (math.log10(max(v, self.least)) for v in (value, self.least, self.most))
            return (value - least) / (most - least)
        return (value - self.least) / (self.most - self.least)


def linear_axis(title: str, values: Sequence[float], show: Callable[[float], str]) -> Axis:
    """From 0 to just above the largest value, with round ticks."""
    most = max([*values, 0.0]) or 1.0
    step = 10 ** math.floor(math.log10(most / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if most / (step * factor) <= 5)
    count = math.ceil(most / step)
    return Axis(title, 0.0, step * count, [step * i for i in range(count + 1)], show)


def log_axis(title: str, values: Sequence[float], show: Callable[[float], str]) -> Axis:
    """Over the values, in steps of about two: 1, 2, 5, 10."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive), max(positive)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
    first = max(index for index, step in enumerate(steps) if step <= low * _JUST)
    last = next(index for index, step in enumerate(steps) if step >= high / _JUST and index > first)
    ticks = steps[first : last + 1]
    return Axis(title, ticks[0], ticks[-1], ticks, show, log=True)


def line_plot(label: str, x: Axis, y: Axis, lines: Mapping[str, Sequence[Point]]) -> str:
    """An <svg> with one stepped line for each name, in the class `line NAME`. `label` says what it shows."""
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">']
    for tick in y.ticks:
        at = _y(y, tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{at + 4}" text-anchor="end">{y.show(tick)}</text>')
    for tick in x.ticks:
        at = _x(x, tick)
        parts.append(
            f'<text x="{at}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{x.show(tick)}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text class="title" x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{x.title}</text>')
    for name, points in lines.items():
        if points:
            parts.append(f'<path class="line {name}" d="{_steps(x, y, points)}"/>')
    parts.append("</svg>")
    return "\n".join(parts)


def _steps(x: Axis, y: Axis, points: Sequence[Point]) -> str:
    """Each value holds until the next point."""
    first, *rest = points
    path = [f"M{_x(x, first[0])} {_y(y, first[1])}"]
    path += [f"H{_x(x, at)}V{_y(y, value)}" for at, value in rest]
    return "".join(path)


def _x(axis: Axis, value: float) -> float:
    return round(_LEFT + axis.share(value) * (_WIDTH - _LEFT - _RIGHT), 1)


def _y(axis: Axis, value: float) -> float:
    return round(_HEIGHT - _BOTTOM - axis.share(value) * (_HEIGHT - _TOP - _BOTTOM), 1)
