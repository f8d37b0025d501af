"""The comparison as tables in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from flashstate.bench.compare import HIT_RATE, OUTPUT, PROMPT, TTFT_P90, Comparison, Ratio, Spread
from flashstate.bench.options import Options
from flashstate.report.results import STOCK_BEST

_MINUTE_S: Final = 60


@dataclass(frozen=True)
class _Column:
    title: str
    figure: str
    show: Callable[[float], str]


_COLUMNS: Final = (
    _Column("prompt\nK/min", PROMPT, lambda value: f"{_MINUTE_S * value / 1000:,.0f}"),
    _Column("output\nK/min", OUTPUT, lambda value: f"{_MINUTE_S * value / 1000:,.2f}"),
    _Column("hit rate", HIT_RATE, "{:.1%}".format),
    _Column("TTFT\np50, s", "ttft_s.p50", "{:.2f}".format),
    _Column("TTFT\np90, s", TTFT_P90, "{:.2f}".format),
    _Column("latency\np50, s", "latency_s.p50", "{:.2f}".format),
    _Column("busy", "busy", "{:.0%}".format),
    _Column("pre-\nfill", "prefill", "{:.0%}".format),
)
_RATIOS: Final = (
    ("prompt throughput", PROMPT),
    ("output throughput", OUTPUT),
    ("TTFT p90", TTFT_P90),
)


_WIDE: Final = 140
"""Columns that the ranges need."""


def tables(found: Comparison, options: Options, columns: int) -> Iterator[RenderableType]:
    """A table of medians, one of ratios to the settings of stock vLLM, and a note on repeats that are missing.

    `columns`: of the terminal; in a wide one the range of the repeats stands below each median.
    """
    yield _figures(found, options, with_ranges=columns >= _WIDE)
    ratios = _ratios(found, options, with_ranges=columns >= _WIDE)
    if ratios is not None:
        yield Text("")
        yield ratios
    missing = _missing(found, options)
    if missing is not None:
        yield Text("")
        yield missing


def _figures(found: Comparison, options: Options, *, with_ranges: bool) -> Table:
    columns = [c for c in _COLUMNS if c.figure != "prefill" or options.cost_file is not None]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1), collapse_padding=True)
    table.add_column("sessions", justify="right")
    table.add_column("engine", no_wrap=True)
    for column in columns:
        table.add_column(column.title, justify="right")
    for sessions in options.loads:
        for number, engine in enumerate(options.engines):
            cells = [
                _cell(found.spread(engine.name, sessions, c.figure), c.show, with_range=with_ranges)
                for c in columns
            ]
            table.add_row(str(sessions) if not number else "", Text(engine.name), *cells)
    return table


def _cell(spread: Spread | None, show: Callable[[float], str], *, with_range: bool) -> Text:
    if spread is None:
        return Text("-")
    low, high = show(spread.low), show(spread.high)
    text = Text(show(spread.median))
    if with_range and low != high:
        text.append(f"\n{low} - {high}", style="dim")
    return text


def _ratios(found: Comparison, options: Options, *, with_ranges: bool) -> Table | None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1), collapse_padding=True)
    table.add_column("sessions", justify="right")
    table.add_column("ratio", no_wrap=True)
    for title, _ in _RATIOS:
        table.add_column(title, justify="right")
    for sessions in options.loads:
        for number, (name, ours, base) in enumerate(_pairs(found, options, sessions)):
            cells = [
                ratio_text(found.ratio(ours, base, sessions, figure), with_range=with_ranges)
                for _, figure in _RATIOS
            ]
            table.add_row(str(sessions) if not number else "", Text(name), *cells)
    return table if table.row_count else None


def _pairs(found: Comparison, options: Options, sessions: int) -> Iterator[tuple[str, str, str]]:
    """What the pair is called, and which engine is held against which setting of stock vLLM, its best last."""
    stock = [engine.name for engine in options.engines if engine.is_stock]
    best = found.best(stock, sessions) if len(stock) > 1 else None
    for engine in options.engines:
        if not engine.is_stock:
            for base in stock:
                yield f"{engine.name} / {base}", engine.name, base
            if best is not None:
                yield f"{engine.name} / {STOCK_BEST} ({best})", engine.name, best


def _missing(found: Comparison, options: Options) -> Text | None:
    """Which engines have fewer repeats at a load than there are, if any, and what that means."""
    loads = []
    for sessions in options.loads:
        made = {engine.name: found.repeats(engine.name, sessions) for engine in options.engines}
        every = len(set[int]().union(*made.values()))
        few = [f"{name} ({len(of)} of {every})" for name, of in made.items() if 0 < len(of) < every]
        if few:
            loads.append(f"at {sessions} sessions {', '.join(few)}")
    if not loads:
        return None
    return Text(
        f"Repeats are missing: {'; '.join(loads)}. Each repeat has other agents: a median of fewer says little "
        "beside the others; a ratio is of the repeats that both have, stock-best of those that all settings have.",
        style="yellow",
    )


def ratio_text(ratio: Ratio | None, *, with_range: bool = True) -> str:
    """The mean and, if asked for, its interval; a star where the interval leaves 1 out."""
    if ratio is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.mean:.2f}x"
    star = "*" if ratio.is_significant else " "
    interval = f" ({ratio.low:.2f} - {ratio.high:.2f})" if with_range else ""
    return f"{ratio.mean:.2f}x{interval}{star}"
