"""What a run amounts to: its figures over the measured time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from flashstate.economics.accounts import profit_per_gpu_hour
from flashstate.economics.prices import Prices
from flashstate.economics.show import dollars
from flashstate.percentiles import p50_p90
from flashstate.report.engine import Percentiles
from flashstate.report.figures import NONE, count, pair, percent, seconds
from flashstate.report.runs.request import Request, Run
from flashstate.report.simulation import MISS_REASONS


@dataclass(frozen=True, slots=True)
class Costs:
    """What tokens sell for and how many GPUs one engine has."""

    prices: Prices
    gpus: int


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Sums and rates of the requests answered in `seconds` of measured time; failed ones count in `failed` alone.

    Tokens in tokens, rates in tokens a minute, profit in dollars a GPU-hour. None: the file does not say.
    """

    sessions: int | None
    seconds: float
    requests: int
    failed: Mapping[str, int]
    prompt_tokens: int
    cached_tokens: int | None
    recomputed_tokens: int | None
    missed_tokens: Mapping[str, int | None]
    prompt_tokens_per_min: float
    output_tokens_per_min: float
    ttft_s: Percentiles
    latency_s: Percentiles
    profit_per_gpu_hour: float | None

    @property
    def hit_rate(self) -> float | None:
        """Cached over prompt tokens."""
        return share(self.cached_tokens, self.prompt_tokens)


def figures(run: Run, costs: Costs) -> RunFigures:
    """Sums up a run."""
    answered = run.answered
    minutes = max(run.seconds, 1e-9) / 60
    prompt, output = (sum(tokens) for tokens in _tokens(answered))
    cached = added(request.cached_tokens for request in answered)
    return RunFigures(
        sessions=run.concurrent_sessions,
        seconds=run.seconds,
        requests=len(answered),
        failed=Counter(r.error_kind for r in run.measured if r.error_kind is not None),
        prompt_tokens=prompt,
        cached_tokens=cached,
        recomputed_tokens=added(request.recomputed_tokens for request in answered),
        missed_tokens={reason: run.missed(reason) for reason in MISS_REASONS},
        prompt_tokens_per_min=prompt / minutes,
        output_tokens_per_min=output / minutes,
        ttft_s=_percentiles([r.first_s - r.start_s for r in answered if r.first_s is not None]),
        latency_s=_percentiles([r.end_s - r.start_s for r in answered]),
        profit_per_gpu_hour=profit(share(cached, prompt), prompt / minutes, output / minutes, costs),
    )


def profit(
    hit_rate: float | None, prompt_tokens_per_min: float, output_tokens_per_min: float, costs: Costs
) -> float | None:
    """Dollars a GPU-hour at these rates of one engine, all its GPUs together; None where no hit rate is known."""
    if hit_rate is None:
        return None
    return profit_per_gpu_hour(
        costs.prices, hit_rate, prompt_tokens_per_min, output_tokens_per_min, costs.gpus
    )


def added(values: Iterable[int | None]) -> int | None:
    """Their sum; None if one is not known, or there are none."""
    total = None
    for value in values:
        if value is None:
            return None
        total = value + (total or 0)
    return total


def share(some: int | None, of: int) -> float | None:
    """A part of a whole; None where either is not known."""
    return None if some is None or not of else some / of


def _percentiles(values: Sequence[float]) -> Percentiles:
    return Percentiles(*(p50_p90(values) or (None, None)))


def _tokens(answered: Sequence[Request]) -> tuple[list[int], list[int]]:
    return [r.prompt_tokens for r in answered], [r.output_tokens for r in answered]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: its name, a hint, how a run's figure reads."""

    label: str
    hint: str
    show: Callable[[RunFigures], str]


def _missed(reason: str) -> Callable[[RunFigures], str]:
    return lambda f: count(f.missed_tokens[reason])


def _failed(f: RunFigures) -> str:
    kinds = ", ".join(f"{kind} {number}" for kind, number in f.failed.items())
    return f"{sum(f.failed.values())} ({kinds})" if kinds else "0"


ROWS: Final = (
    Row("Sessions", "at a time", lambda f: count(f.sessions)),
    Row("Measured", "seconds", lambda f: f"{f.seconds:,.1f}"),
    Row("Requests", "answered in that time", lambda f: count(f.requests)),
    Row("Failed", "by kind; in no other figure", _failed),
    Row("Hit rate", "prompt tokens that were not computed", lambda f: percent(f.hit_rate)),
    Row("Recomputed tokens", "that an earlier request had computed", lambda f: count(f.recomputed_tokens)),
    Row("Missed: placement", "no checkpoint was taken there", _missed("placement")),
    Row("Missed: capacity", "its KV was evicted", _missed("capacity")),
    Row("Missed: dependency", "KV there, checkpoint gone", _missed("dependency")),
    Row("Prompt tokens/min", "served, cached ones too", lambda f: count(f.prompt_tokens_per_min)),
    Row("Output tokens/min", "generated", lambda f: count(f.output_tokens_per_min)),
    Row(
        "TTFT p50 / p90", "time to first token", lambda f: pair(seconds(f.ttft_s.p50), seconds(f.ttft_s.p90))
    ),
    Row(
        "Latency p50 / p90",
        "whole request",
        lambda f: pair(seconds(f.latency_s.p50), seconds(f.latency_s.p90)),
    ),
    Row(
        "Profit a GPU-hour",
        "at the prices below",
        lambda f: NONE if f.profit_per_gpu_hour is None else dollars(f.profit_per_gpu_hour),
    ),
)
