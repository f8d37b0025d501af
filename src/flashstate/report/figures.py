"""How figures are written for people, and which ones stand side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from flashstate.report.engine import EngineResult
from flashstate.report.results import FLASHSTATE, STOCK, STOCK_BEST, Results

NONE: Final = "-"


def count(value: float | None) -> str:
    """A number of tokens: 12,345, 1.23 M."""
    if value is None:
        return NONE
    return f"{value / 1e6:.2f} M" if abs(value) >= 1e6 else f"{value:,.0f}"


def percent(value: float | None) -> str:
    """A share: 61.1 %."""
    return NONE if value is None else f"{value * 100:.1f} %"


def seconds(value: float | None) -> str:
    """A time: 12.4 s."""
    return NONE if value is None else f"{value:.2f} s"


def times(value: float | None) -> str:
    """A multiple: 2.1x."""
    return NONE if value is None else f"{value:.2f}x"


def pair(first: str, second: str) -> str:
    """Two figures in one cell."""
    return f"{first} / {second}"


@dataclass(frozen=True)
class Row:
    """A line of the comparison: its name, how an engine's figure reads, and a hint at what it means."""

    label: str
    show: Callable[[EngineResult], str]
    hint: str = ""


ROWS: Final = (
    Row("Hit rate", lambda e: percent(e.hit_rate), "prompt tokens that were not computed"),
    Row("Recomputed tokens", lambda e: count(e.recomputed_tokens), "computed again, beyond the ideal"),
    Row("Prefill over ideal", lambda e: times(e.computed_over_ideal), "1.00x is a perfect cache"),
    Row(
        "TTFT p50 / p90", lambda e: pair(seconds(e.ttft_s.p50), seconds(e.ttft_s.p90)), "time to first token"
    ),
    Row("Latency p50 / p90", lambda e: pair(seconds(e.e2e_s.p50), seconds(e.e2e_s.p90)), "whole request"),
    Row("Prompt tokens/min", lambda e: count(e.prompt_tokens_per_min), "served"),
    Row("Output tokens/min", lambda e: count(e.output_tokens_per_min), "generated"),
    Row("Missed: placement", lambda e: count(e.misses_tokens.get("placement")), "no state was taken there"),
    Row("Missed: capacity", lambda e: count(e.misses_tokens.get("capacity")), "its KV was evicted"),
    Row("Missed: dependency", lambda e: count(e.misses_tokens.get("dependency")), "KV there, state gone"),
)


def headline(results: Results) -> str | None:
    """One line of ratios against the best stock setting, or the only one; None without both sides."""
    for name in (STOCK_BEST, STOCK):
        ratios = results.ratios.get(f"{FLASHSTATE}/{name}")
        if ratios is None:
            continue
        parts = [f"{times(ratios['prompt_tokens_per_min'])} the prompt throughput"]
        parts.append(f"{times(ratios['ttft_p90'])} the TTFT p90")
        theirs, ours = results.engines[name].hit_rate, results.engines[FLASHSTATE].hit_rate
        parts.append(f"hit rate {percent(ours)} against {percent(theirs)}")
        return f"FlashState against {name}: " + ", ".join(parts)
    return None
