"""What the runs say when they are held against each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median, stdev
from typing import Final, TypeVar

from flashstate.bench.result import Result, RunKey

T = TypeVar("T")

PROMPT: Final = "prompt_tokens_per_s"
OUTPUT: Final = "output_tokens_per_s"
HIT_RATE: Final = "hit_rate"
TTFT_P90: Final = "ttft_s.p90"
_SAME_THROUGHPUT: Final = 0.01
"""Settings whose throughput is this close to the best one's are told apart by hit rate."""
_ERRORS: Final = 2.0
"""Standard errors on either side of a mean."""


def best_setting(found: Mapping[T, tuple[float, float]]) -> T:
    """The best of settings (at least one) by prompt throughput, and by hit rate among those about level."""
    most = max(throughput for throughput, _ in found.values())
    near = {name: hits for name, (prompt, hits) in found.items() if prompt >= most * (1 - _SAME_THROUGHPUT)}
    return max(near, key=near.__getitem__)


@dataclass(frozen=True)
class Spread:
    """A figure over repeats: `median`, the lowest and the highest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Ratio:
    """One engine's figure over another's. The mean is geometric, over repeats: each has the same agents for both.

    `low` and `high`: two standard errors of the mean of the logarithms; None with one repeat.
    """

    mean: float
    low: float | None
    high: float | None
    repeats: int

    @property
    def is_significant(self) -> bool | None:
        """Whether 1 lies outside; None where nobody can say."""
        if self.low is None or self.high is None:
            return None
        return not self.low <= 1.0 <= self.high


class Comparison:
    """Looks into the runs; changes nothing. Invalid runs are not among them."""

    def __init__(self, runs: Mapping[RunKey, Result]) -> None:
        self._runs = runs

    def spread(self, engine: str, sessions: int, figure: str) -> Spread | None:
        """Of a figure at a load; None if no run has it."""
        values = [
            value
            for key, run in self._runs.items()
            if (key.engine, key.sessions) == (engine, sessions) and (value := run.value(figure)) is not None
        ]
        return Spread(median(values), min(values), max(values)) if values else None

    def ratio(self, engine: str, base: str, sessions: int, figure: str) -> Ratio | None:
        """`engine` over `base`, from the repeats that both have; None if there are none, or a figure is 0."""
        logs = []
        for key, run in self._runs.items():
            if (key.engine, key.sessions) != (engine, sessions):
                continue
            other = self._runs.get(RunKey(base, sessions, key.repeat))
            ours, theirs = run.value(figure), None if other is None else other.value(figure)
            if ours and theirs:
                logs.append(log(ours / theirs))
        if not logs:
            return None
        mean = fmean(logs)
        if len(logs) == 1:
            return Ratio(exp(mean), None, None, 1)
        error = _ERRORS * stdev(logs) / sqrt(len(logs))
        return Ratio(exp(mean), exp(mean - error), exp(mean + error), len(logs))

    def best(self, engines: Iterable[str], sessions: int) -> str | None:
        """The engine with the most prompt throughput at a load; among those within 1% of it, the best hit rate."""
        found = {
            engine: (spread.median, self._hit_rate(engine, sessions))
            for engine in engines
            if (spread := self.spread(engine, sessions, PROMPT)) is not None
        }
        return best_setting(found) if found else None

    def knee(self, engine: str, loads: Sequence[int]) -> int | None:
        """The load at which an engine's prompt throughput is highest: with more sessions it does not rise."""
        found = {
            sessions: spread.median
            for sessions in loads
            if (spread := self.spread(engine, sessions, PROMPT)) is not None
        }
        return max(found, key=found.__getitem__) if found else None

    def _hit_rate(self, engine: str, sessions: int) -> float:
        spread = self.spread(engine, sessions, HIT_RATE)
        return spread.median if spread is not None else 0.0
