"""Servers side by side as a table, within 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from flashstate.economics.prices import Prices
from flashstate.economics.show import dollars
from flashstate.report.figures import NONE, count, pair, percent, seconds
from flashstate.report.simulation import MISS_REASONS
from flashstate.urls import without_passwords
from flashstate.watch.window import Away, Reading

State = Reading | Away


@dataclass(frozen=True, slots=True)
class Overlay:
    """What money is counted with."""

    prices: Prices
    gpus: int


def _missed(reason: str) -> Callable[[Reading], str]:
    def show(reading: Reading) -> str:
        missed = reading.missed_tokens_per_min
        return NONE if missed is None else count(missed.get(reason, 0.0))

    return show


_ROWS: Final[Mapping[str, Callable[[Reading], str]]] = {
    "Prompt tokens/min": lambda r: count(r.prompt_tokens_per_min),
    "Output tokens/min": lambda r: count(r.output_tokens_per_min),
    "Hit rate": lambda r: percent(r.hit_rate),
    "TTFT, mean": lambda r: seconds(r.ttft_s),
    "Running / waiting": lambda r: pair(count(r.running), count(r.waiting)),
    "KV in use": lambda r: percent(r.kv_use),
    "States cached": lambda r: count(r.states),
    **{f"Missed: {reason}": _missed(reason) for reason in MISS_REASONS},
}
"""Missed: tokens a minute."""


def draw(servers: Mapping[str, State], overlay: Overlay, window_s: float, now: datetime) -> RenderableType:
    """The table, and below it what its figures are taken over and priced at."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("")
    for url in servers:
        table.add_column(_name(url), justify="right", overflow="fold", max_width=20)
    states = list(servers.values())
    table.add_row("", *map(_state, states))
    for label, show in _ROWS.items():
        table.add_row(label, *(NONE if isinstance(state, Away) else show(state) for state in states))
    table.add_row("Profit/GPU-hour", *(_profit(state, overlay) for state in states))
    return Group(table, Text(_foot(states, overlay, window_s, now), style="dim"))


def _name(url: str) -> str:
    return without_passwords(url).split("://", 1)[-1]


def _state(state: State) -> Text:
    if isinstance(state, Away):
        return Text(f"away: {state.reason}", style="red")
    return Text("up", style="green")


def _profit(state: State, overlay: Overlay) -> Text:
    profit = None if isinstance(state, Away) else state.profit_per_gpu_hour(overlay.prices, overlay.gpus)
    if profit is None:
        return Text(NONE)
    return Text(dollars(profit), style="bold green" if profit > 0 else "bold")


def _foot(states: Sequence[State], overlay: Overlay, window_s: float, now: datetime) -> str:
    at = overlay.prices
    spans = [state.seconds for state in states if isinstance(state, Reading)]
    span = f"over the last {max(spans):.0f} s" if spans and max(spans) > 0 else f"over {window_s:g} s"
    gpus = f"{overlay.gpus} GPU" + ("s" if overlay.gpus > 1 else "")
    return (
        f"{now:%H:%M:%S}, rates {span}; at {at.name} ({at.date}): ${at.input:g} / ${at.cached_input:g} / "
        f"${at.output:g} per 1M input / cached / output, ${at.gpu_hour:g} a GPU-hour, {gpus} a server"
    )
