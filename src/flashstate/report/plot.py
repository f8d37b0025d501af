"""Line plots as SVG, coloured by the page's style sheet, so that they follow light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
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


def signed_axis(title: str, values: Sequence[float], show: Callable[[float], str]) -> Axis:
    """From just below the least value to just above the largest, 0 among them, with round ticks."""
    low, high = min([*values, 0.0]), max([*values, 0.0])
    if low >= 0:
        return linear_axis(title, values, show)
    step = linear_axis("", [high - low], show).ticks[1]
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = [step * n for n in range(first, last + 1)]
    return Axis(title, ticks[0], ticks[-1], ticks, show)


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


@dataclass(frozen=True)
class Series:
    """A line through measured points, in the class `line NAME`. `label` and `show` say what a point is."""

    name: str
    label: str
    points: Sequence[Point]
    show: Callable[[float], str]


@dataclass(frozen=True)
class Mark:
    """A vertical line at a value of x, with a word on it."""

    at: float
    text: str


def line_plot(label: str, x: Axis, y: Axis, lines: Mapping[str, Sequence[Point]]) -> str:
    """An <svg> with one stepped line for each name, in the class `line NAME`. `label` says what it shows."""
    paths = [
        f'<path class="line {name}" d="{_steps(x, y, points)}"/>' for name, points in lines.items() if points
    ]
    ranges = [
        _range(name, [value for _, value in points], y.show) for name, points in lines.items() if points
    ]
    return _svg(label, ranges, x, y, paths)


def point_plot(label: str, x: Axis, y: Axis, series: Sequence[Series], mark: Mark | None = None) -> str:
    """An <svg> of points joined by lines; each point says its value when pointed at. Later series are on top."""
    parts = []
    if mark is not None and x.least <= mark.at <= x.most:
        at = _x(x, mark.at)
        anchor = "end" if x.share(mark.at) > 0.5 else "start"
        parts.append(f'<line class="mark" x1="{at}" x2="{at}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text class="mark" x="{at}" y="{_TOP - 2}" text-anchor="{anchor}">{mark.text}</text>')
    for line in series:
        if not line.points:
            continue
        spots = [(_x(x, at), _y(y, value)) for at, value in line.points]
        parts.append(f'<g class="{line.name}">')
        parts.append(
            f'<path class="line {line.name}" d="M{"L".join(f"{at} {value}" for at, value in spots)}"/>'
        )
        for (left, top), (at, value) in zip(spots, line.points, strict=True):
            title = escape(f"{line.label}, {x.show(at)}: {line.show(value)}")
            parts.append(f'<circle cx="{left}" cy="{top}" r="3"><title>{title}</title></circle>')
        parts.append("</g>")
    ranges = [_range(line.label, [v for _, v in line.points], line.show) for line in series if line.points]
    return _svg(label, ranges, x, y, parts)


def head(label: str, description: str, width: float, height: float) -> str:
    """An <svg> begun: what it shows, for those who see it and those who hear it."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title><desc>{escape(description)}</desc>"
    )


def _range(name: str, values: Sequence[float], show: Callable[[float], str]) -> str:
    """A line in words."""
    first, last = show(values[0]), show(values[-1])
    return f"{name}: from {first} to {last}, least {show(min(values))}, most {show(max(values))}"


def _svg(label: str, ranges: Sequence[str], x: Axis, y: Axis, drawn: Sequence[str]) -> str:
    """`drawn` in its axes; `ranges` says each line in words."""
    description = f"Across: {x.title or 'x'}. {'; '.join(ranges) or 'Nothing was measured'}."
    parts = [head(label, description, _WIDTH, _HEIGHT)]
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
    return "\n".join([*parts, *drawn, "</svg>"])


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
