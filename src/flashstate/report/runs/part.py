"""What the page has of measured runs: tables, plots over time and load, swim lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from markupsafe import Markup

from flashstate.economics.show import dollars
from flashstate.report.figures import count, percent, seconds
from flashstate.report.plot import Axis, Mark, Point, Series, linear_axis, log_axis, point_plot, signed_axis
from flashstate.report.published import Comparison
from flashstate.report.runs.figures import ROWS, Costs, RunFigures, added, figures, share
from flashstate.report.runs.lanes import fills_in, sessions_shown, swim_lanes
from flashstate.report.runs.published import beside_published
from flashstate.report.runs.request import Request, Run
from flashstate.report.runs.series import OVER_TIME, slices, width_s

_HUES: Final = 8
_OURS: Final = "flashstate"
_MOST_TICKS: Final = 9

_SHOW: Final[Mapping[str, Callable[[float], str]]] = {
    "Hit rate": percent,
    "Time to first token": seconds,
    "Latency": seconds,
}
_BY_LOAD: Final[Mapping[str, tuple[str, Callable[[RunFigures], float | None], Callable[[float], str]]]] = {
    "Prompt throughput by load": ("tokens a minute", lambda f: f.prompt_tokens_per_min, count),
    "Output throughput by load": ("tokens a minute", lambda f: f.output_tokens_per_min, count),
    "Hit rate by load": ("prompt tokens that were not computed", lambda f: f.hit_rate, percent),
    "TTFT p90 by load": ("seconds to the first token", lambda f: f.ttft_s.p90, seconds),
    "Latency p50 by load": ("seconds, whole request", lambda f: f.latency_s.p50, seconds),
    "Profit by load": ("dollars a GPU-hour", lambda f: f.profit_per_gpu_hour, dollars),
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A plot under its title."""

    title: str
    hint: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class Line:
    """A run in the key: its number, name and class, and whether it is shown at first."""

    number: int
    name: str
    style: str
    shown: bool = True


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session's sums in one run, as they are shown."""

    run: str
    session: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunsPart:
    """Everything that the page shows of runs. `lines`: a run each; `engines`: a name each; `rows`: a cell a run."""

    lines: Sequence[Line]
    engines: Sequence[Line]
    rows: Sequence[tuple[str, str, Sequence[str]]]
    over_time: Sequence[Drawing]
    slice_s: float
    by_load: Sequence[Drawing]
    lanes: Sequence[Drawing]
    fills: Mapping[str, str]
    sessions_note: str
    sessions: Sequence[SessionRow]
    published: Comparison
    notes: Sequence[str]


def runs_part(runs: Sequence[Run], costs: Costs) -> RunsPart:
    """Draws runs side by side. Runs of one name are one engine at several loads."""
    found = [figures(run, costs) for run in runs]
    lines = _lines(runs, found)
    firsts = {run.name: number for number, run in reversed(list(enumerate(runs)))}
    engines = [Line(n, run.name, lines[n].style) for n, run in enumerate(runs) if firsts[run.name] == n]
    drawn = [(run, line) for run, line in zip(runs, lines, strict=True) if line.shown]
    heaviest = [run for run, _ in drawn]
    sessions = sessions_shown(heaviest)
    every = {request.session for run in heaviest for request in run.requests if request.session is not None}
    width = width_s(runs)
    return RunsPart(
        lines=lines,
        engines=engines,
        rows=[(row.label, row.hint, [row.show(f) for f in found]) for row in ROWS],
        over_time=list(_over_time(runs, lines, width, costs)),
        slice_s=width,
        by_load=list(_by_load(runs, found, engines)),
        lanes=list(_lanes(drawn, sessions)),
        fills=fills_in(heaviest, sessions),
        sessions_note=_sessions_note(len(sessions), len(every)),
        sessions=list(_sessions(drawn, sessions)),
        published=beside_published(
            [(line.name, f) for line, f in zip(lines, found, strict=True)], costs.gpus
        ),
        notes=[*_notes(runs, lines), _prices(costs), "“-”: the file does not say."],
    )


def _titles(runs: Sequence[Run], found: Sequence[RunFigures]) -> list[str]:
    """Names; where one is there twice, its load, and its place if that is the same, too."""
    names = [run.name for run in runs]
    titles: list[str] = []
    for name, f in zip(names, found, strict=True):
        title = name
        if names.count(name) > 1:
            title = f"{name}, {f.sessions} sessions" if f.sessions else name
        again = sum(other == title or other.startswith(f"{title} (") for other in titles)
        titles.append(f"{title} ({again + 1})" if again else title)
    return titles


def _lines(runs: Sequence[Run], found: Sequence[RunFigures]) -> list[Line]:
    """A hue an engine, dashes for its further runs; at first each engine is shown at its heaviest load alone."""
    engines = list(dict.fromkeys(run.name for run in runs))
    heaviest = {
        engine: max(
            (n for n, run in enumerate(runs) if run.name == engine),
            key=lambda n: (found[n].sessions or 0, -n),
        )
        for engine in engines
    }
    # One engine alone has the colour of ours; variants of it must differ.
    ours = [engine for engine in engines if engine.startswith(_OURS)]
    lines = []
    for number, (run, title) in enumerate(zip(runs, _titles(runs, found), strict=True)):
        further = sum(other.name == run.name for other in runs[:number])
        hue = "ours" if run.name == _OURS or [run.name] == ours else f"hue{engines.index(run.name) % _HUES}"
        dash = f" dash{further % 4}" if further else ""
        lines.append(Line(number, title, f"{hue}{dash}", heaviest[run.name] == number))
    return lines


def _over_time(runs: Sequence[Run], lines: Sequence[Line], width: float, costs: Costs) -> Iterator[Drawing]:
    cut = [slices(run, width) for run in runs]
    last = max(max(request.end_s for request in run.requests) for run in runs)
    x = _time_axis(last)
    mark = _measured_from(runs)
    values = {name: (hint, of, _SHOW.get(name, count)) for name, (hint, of) in OVER_TIME.items()}
    values["Profit"] = ("dollars a GPU-hour, at the prices below", lambda s: s.profit(costs), dollars)
    for name, (hint, of, show) in values.items():
        series = []
        for line, parts in zip(lines, cut, strict=True):
            points = [(part.at_s, value) for part in parts if (value := of(part)) is not None]
            series.append(Series(f"n{line.number} {line.style}", line.name, points, show))
        if any(line.points for line in series):
            yield _drawing(name, hint, f"{name} over time, by engine", x, series, mark)


def _by_load(runs: Sequence[Run], found: Sequence[RunFigures], engines: Sequence[Line]) -> Iterator[Drawing]:
    """Only where an engine was run at several loads."""
    loads = {(run.name, f.sessions) for run, f in zip(runs, found, strict=True) if f.sessions}
    if all(sum(of == engine.name for of, _ in loads) < 2 for engine in engines):
        return
    x = _load_axis(sorted({float(load) for _, load in loads if load is not None}))
    for title, (hint, of, show) in _BY_LOAD.items():
        series = []
        for engine in engines:
            points = _means(
                (float(f.sessions), value)
                for run, f in zip(runs, found, strict=True)
                if run.name == engine.name and f.sessions and (value := of(f)) is not None
            )
            series.append(Series(engine.style, engine.name, points, show))
        if any(line.points for line in series):
            yield _drawing(title, hint, f"{title}, by engine", x, series, None)


def _means(points: Iterator[Point]) -> list[Point]:
    """One value a load."""
    by_load: dict[float, list[float]] = {}
    for load, value in points:
        by_load.setdefault(load, []).append(value)
    return [(load, fmean(values)) for load, values in sorted(by_load.items())]


def _drawing(
    title: str, hint: str, label: str, x: Axis, series: Sequence[Series], mark: Mark | None
) -> Drawing:
    values = [value for line in series for _, value in line.points]
    if title.startswith("Hit rate"):
        y = Axis("", 0.0, 1.0, [0.0, 0.25, 0.5, 0.75, 1.0], "{:.0%}".format)
    elif title.startswith(("Time", "TTFT", "Latency")):
        y = _few(log_axis("", values, "{:g}".format))
    else:
        y = signed_axis("", values, short)
    # Ours last: on top.
    ordered = sorted(series, key=lambda line: "ours" in line.name.split())
    return Drawing(title, f"{hint[0].upper()}{hint[1:]}.", Markup(point_plot(label, x, y, ordered, mark)))


def _few(axis: Axis) -> Axis:
    ticks = axis.ticks[:: -(-len(axis.ticks) // _MOST_TICKS)]
    return Axis(axis.title, axis.least, axis.most, ticks, axis.show, axis.log)


def _time_axis(last_s: float) -> Axis:
    if last_s > 600:
        in_minutes = linear_axis("minutes", [last_s / 60], "{:g}".format)
        ticks = [tick * 60 for tick in in_minutes.ticks]
        return Axis("minutes", 0.0, in_minutes.most * 60, ticks, lambda value: f"{value / 60:g}")
    return linear_axis("seconds", [last_s], lambda value: f"{value:g}")


def _load_axis(loads: Sequence[float]) -> Axis:
    span = loads[-1] - loads[0]
    margin = span * 0.03 or 1
    ticks = [loads[-1]]
    for load in reversed(loads):
        if ticks[-1] - load >= span / _MOST_TICKS:  # else their numbers would run into each other
            ticks.append(load)
    return Axis("concurrent sessions", loads[0] - margin, loads[-1] + margin, ticks, "{:.0f}".format)


def _measured_from(runs: Sequence[Run]) -> Mark | None:
    opened = min(run.opened_s for run in runs)
    return Mark(opened, "measured from here") if opened > 0 else None


def _lanes(drawn: Sequence[tuple[Run, Line]], sessions: Sequence[str]) -> Iterator[Drawing]:
    x = _time_axis(max(request.end_s for run, _ in drawn for request in run.requests))
    for run, line in drawn:
        if any(request.session in sessions for request in run.requests):
            svg = swim_lanes(f"Sessions of {line.name} over time", run, sessions, x)
            yield Drawing(line.name, "", Markup(svg))


def _sessions_note(shown: int, every: int) -> str:
    if shown == every:
        return f"All {every} sessions."
    return f"{shown} of {every} sessions: those with the most recomputed tokens over all runs."


def _sessions(drawn: Sequence[tuple[Run, Line]], sessions: Sequence[str]) -> Iterator[SessionRow]:
    for session in sessions:
        for run, line in drawn:
            requests = [request for request in run.requests if request.session == session]
            if requests:
                yield SessionRow(line.name, session, _sums(requests))


def _sums(requests: Sequence[Request]) -> tuple[str, ...]:
    answered = [request for request in requests if request.error is None]
    prompt = sum(request.prompt_tokens for request in answered)
    cached = added(request.cached_tokens for request in answered)
    recomputed = added(request.recomputed_tokens for request in answered)
    return (
        count(len(requests)),
        count(len(requests) - len(answered)),
        count(prompt),
        percent(share(cached, prompt)),
        count(recomputed),
    )


def _prices(costs: Costs) -> str:
    at = costs.prices
    tokens = " / ".join(f"${price:g}" for price in (at.input, at.cached_input, at.output))
    gpus = f"{costs.gpus} GPU" + ("s" if costs.gpus > 1 else "")
    return (
        f"Profit at the prices {at.name} ({at.date}): {tokens} per 1M input / cached input / output tokens, "
        f"${at.gpu_hour:g} a GPU-hour, {gpus} an engine."
    )


def _notes(runs: Sequence[Run], lines: Sequence[Line]) -> Iterator[str]:
    for run, line in zip(runs, lines, strict=True):
        said = f"{line.name}: {len(run.requests):,} requests from {run.source}"
        if len(run.measured) < len(run.requests):
            said += f", {len(run.measured):,} of them in the measured time"
        if run.stopped:
            said += f"; stopped before its time: {run.stopped}"
        if run.left_out:
            said += f"; left out as no records: {run.left_out} line" + ("s" if run.left_out > 1 else "")
        yield f"{said}."


def short(value: float) -> str:
    """A tick: 1.5M, 20K, 300, -2.5."""
    for unit, name in ((1e6, "M"), (1e3, "K")):
        if abs(value) >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"
