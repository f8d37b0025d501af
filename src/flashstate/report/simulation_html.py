"""What the page has of one simulation: tables, plots over load, published figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from markupsafe import Markup

from flashstate.report.plot import Axis, Mark, Series, linear_axis, log_axis, point_plot
from flashstate.report.published import Comparison, comparisons
from flashstate.report.simulation import (
    BOUND,
    BOUNDS,
    CHECKPOINTS,
    HIT_RATE,
    MISSED,
    OCCUPANCY,
    OURS,
    REDUNDANT,
    SERVED,
    Figure,
    Simulation,
    share,
)
from flashstate.report.simulation_view import Table, notes, tables, telling_load

_HUES: Final = 8
_MOST_TICKS: Final = 9
_PLOTTED: Final = (HIT_RATE, REDUNDANT, *MISSED, OCCUPANCY, CHECKPOINTS, *SERVED)
_LINEAR: Final = SERVED[:2]
"""Throughputs; the other figures differ by orders of magnitude."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing under its title."""

    title: str
    hint: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class Part:
    """What the page has of one simulation. `lines`: each policy's number, class and description."""

    title: str
    headline: str
    lines: Sequence[tuple[int, str, str, str]]
    tables: Sequence[Table]
    notes: Sequence[str]
    plots: Sequence[Plot]
    published: Sequence[Comparison]
    facts: Sequence[tuple[str, str]]


def simulation_part(simulation: Simulation) -> Part:
    """Draws one simulation."""
    lines = [
        (number, policy, _style(policy, number), title)
        for number, (policy, title) in enumerate(simulation.policies.items())
    ]
    styles = {policy: f"n{number} {style}" for number, policy, style, _ in lines}
    return Part(
        simulation.title,
        _headline(simulation),
        lines,
        list(tables(simulation)),
        notes(simulation),
        [_plot(simulation, figure, styles) for figure in _PLOTTED if simulation.has(figure)],
        comparisons(simulation),
        list(_facts(simulation)),
    )


def _style(policy: str, number: int) -> str:
    if policy == OURS:
        return "ours"
    return "bound" if policy in BOUNDS else f"hue{number % _HUES} dash{number // _HUES}"


def _plot(simulation: Simulation, figure: Figure, styles: Mapping[str, str]) -> Plot:
    # Ours last: on top.
    policies = sorted(simulation.policies, key=lambda policy: policy == OURS)
    series = [_series(simulation, figure, policy, styles[policy]) for policy in policies]
    values = [value for line in series for _, value in line.points]
    if figure is HIT_RATE:
        y = _share_axis(values)
    else:
        y = linear_axis("", values, _short) if figure in _LINEAR else _log(values)
    cliff = None if simulation.cliff is None else Mark(simulation.cliff, "working set = cache")
    drawn = point_plot(
        f"{figure.name} by concurrent sessions", _load_axis(simulation.loads), y, series, cliff
    )
    hint = figure.hint[0].upper() + figure.hint[1:]
    return Plot(figure.name, f"{hint}.", Markup(drawn))


def _series(simulation: Simulation, figure: Figure, policy: str, css: str) -> Series:
    means = [(n, simulation.mean(figure, policy, n)) for n in simulation.loads]
    points = [(float(n), mean.value) for n, mean in means if mean is not None]
    return Series(css, policy, points, figure.show)


def _load_axis(loads: Sequence[int]) -> Axis:
    least, most = loads[0], loads[-1]
    margin = (most - least) * 0.03 or 1
    ticks = list(loads[:: -(-len(loads) // _MOST_TICKS)])
    return Axis("concurrent sessions", least - margin, most + margin, ticks, "{:.0f}".format)


def _share_axis(values: Sequence[float]) -> Axis:
    """Up to 1, from just below the least."""
    tenths = math.floor(min(values) * 10)
    step = 1 if tenths >= 5 else 2
    ticks = [tenth / 10 for tenth in range(tenths // step * step, 11, step)]
    return Axis("", ticks[0], 1.0, ticks, "{:.1f}".format)


def _log(values: Sequence[float]) -> Axis:
    axis = log_axis("", values, _short)
    if len(axis.ticks) <= _MOST_TICKS:
        return axis
    return replace(axis, ticks=[tick for tick in axis.ticks if math.log10(tick).is_integer()])


def _short(value: float) -> str:
    for unit, name in ((1e6, "M"), (1e3, "K")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def _headline(simulation: Simulation) -> str:
    """Where it gets hard, and who does best there."""
    sessions = telling_load(simulation)
    working_set = simulation.working_set(sessions)
    best = simulation.best(HIT_RATE, sessions)
    mean = None if best is None else simulation.mean(HIT_RATE, best, sessions)
    if working_set is None or mean is None:
        return ""
    line = f"At {sessions} sessions, a working set of {working_set.value:.2f} times the cache, {best} does best: "
    line += f"{share(mean.value)} of the prompt tokens are not computed"
    bound = simulation.mean(HIT_RATE, BOUND, sessions)
    return line + (f"; knowing the future, {share(bound.value)}." if bound is not None else ".")


def _facts(simulation: Simulation) -> Iterator[tuple[str, str]]:
    """How it was run, line by line."""
    for name, value in {**simulation.about, **simulation.setup}.items():
        yield name.replace("_", " "), _line(value)


def _line(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            ", ".join(f"{name.replace('_', ' ')}: {_line(inner)}" for name, inner in value.items()) or "none"
        )
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return f"{value:,.0f}" if isinstance(value, float) and value >= 1e4 else str(value)
