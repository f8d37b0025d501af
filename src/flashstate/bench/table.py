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
    _Column("prompt tokens\na minute", PROMPT, lambda value: f"{_MINUTE_S * value:,.0f}"),
    _Column("output tokens\na minute", OUTPUT, lambda value: f"{_MINUTE_S * value:,.0f}"),
    _Column("hit rate", HIT_RATE, "{:.1%}".format),
    _Column("TTFT\np50, s", "ttft_s.p50", "{:.2f}".format),
    _Column("TTFT\np90, s", TTFT_P90, "{:.2f}".format),
    _Column("latency\np50, s", "latency_s.p50", "{:.2f}".format),
    _Column("engine\nbusy", "busy", "{:.0%}".format),
    _Column("of it\nprefill", "prefill", "{:.0%}".format),
)
_RATIOS: Final = (
    ("prompt throughput", PROMPT),
    ("output throughput", OUTPUT),
    ("TTFT p90", TTFT_P90),
)


def tables(found: Comparison, options: Options) -> Iterator[RenderableType]:
    """A table of medians, the range of repeats below each, and one of ratios to the settings of stock vLLM."""
    yield _figures(found, options)
    ratios = _ratios(found, options)
    if ratios is not None:
        yield Text("")
        yield ratios


def _figures(found: Comparison, options: Options) -> Table:
    columns = [c for c in _COLUMNS if c.figure != "prefill" or options.cost_file is not None]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1), collapse_padding=True)
    table.add_column("sessions", justify="right")
    table.add_column("engine", no_wrap=True)
    for column in columns:
        table.add_column(column.title, justify="right")
    for sessions in options.loads:
        for number, engine in enumerate(options.engines):
            cells = [_cell(found.spread(engine.name, sessions, c.figure), c.show) for c in columns]
            table.add_row(str(sessions) if not number else "", engine.name, *cells)
    return table


def _cell(spread: Spread | None, show: Callable[[float], str]) -> Text:
    if spread is None:
        return Text("-")
    low, high = show(spread.low), show(spread.high)
    text = Text(show(spread.median))
    if low != high:
        text.append(f"\n{low} - {high}", style="dim")
    return text


def _ratios(found: Comparison, options: Options) -> Table | None:
    stock = [engine.name for engine in options.engines if engine.is_stock]
    others = [engine.name for engine in options.engines if not engine.is_stock]
    if not stock or not others:
        return None
    bases = [*stock, *([STOCK_BEST] if len(stock) > 1 else [])]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1), collapse_padding=True)
    table.add_column("sessions", justify="right")
    table.add_column("ratio", no_wrap=True)
    for title, _ in _RATIOS:
        table.add_column(title, justify="right")
    for sessions in options.loads:
        first = True
        best = found.best(stock, sessions)
        for ours in others:
            for base in bases:
                against = best if base == STOCK_BEST else base
                if against is None:
                    continue
                cells = [ratio_text(found.ratio(ours, against, sessions, figure)) for _, figure in _RATIOS]
                name = f"{base} ({best})" if base == STOCK_BEST else base
                table.add_row(str(sessions) if first else "", f"{ours} / {name}", *cells)
                first = False
    return table


def ratio_text(ratio: Ratio | None) -> str:
    """The mean and its interval, with a star where the interval leaves 1 out."""
    if ratio is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.mean:.2f}x"
    star = "*" if ratio.is_significant else " "
    return f"{ratio.mean:.2f}x ({ratio.low:.2f} - {ratio.high:.2f}){star}"
