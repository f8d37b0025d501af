"""What the runs say when they are held against each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
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
    """A figure over repeats: `median`, the lowest and the highest, and how many they are of."""

    median: float
    low: float
    high: float
    repeats: int


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
    """Looks into the runs; changes nothing. Invalid runs are not among them.

    Each repeat has other agents. What is compared is compared repeat by repeat, over those that all sides have.
    """

    def __init__(self, runs: Mapping[RunKey, Result]) -> None:
        self._runs: dict[tuple[str, int], dict[int, Result]] = {}
        for key, run in runs.items():
            self._runs.setdefault((key.engine, key.sessions), {})[key.repeat] = run

    def repeats(self, engine: str, sessions: int) -> Set[int]:
        """Which there are of an engine at a load."""
        return self._at(engine, sessions).keys()

    def spread(self, engine: str, sessions: int, figure: str) -> Spread | None:
        """Of a figure at a load, over all repeats that there are; None if no run has it."""
        runs = self._at(engine, sessions).values()
        values = [value for run in runs if (value := run.value(figure)) is not None]
        return Spread(median(values), min(values), max(values), len(values)) if values else None

    def ratio(self, engine: str, base: str, sessions: int, figure: str) -> Ratio | None:
        """`engine` over `base`, from the repeats that both have; None if there are none, or a figure is 0."""
        ours, theirs = self._at(engine, sessions), self._at(base, sessions)
        logs = [
            log(a / b)
            for repeat in ours.keys() & theirs.keys()
            if (a := ours[repeat].value(figure)) and (b := theirs[repeat].value(figure))
        ]
        if not logs:
            return None
        mean = fmean(logs)
        if len(logs) == 1:
            return Ratio(exp(mean), None, None, 1)
        error = _ERRORS * stdev(logs) / sqrt(len(logs))
        return Ratio(exp(mean), exp(mean - error), exp(mean + error), len(logs))

    def best(self, engines: Iterable[str], sessions: int) -> str | None:
        """The engine with the most prompt throughput at a load; among those within 1% of it, the best hit rate.

        Of those with runs there; None if they have no repeat in common.
        """
        found = self._paired({engine: self._at(engine, sessions) for engine in engines})
        return best_setting(found) if found else None

    def knee(self, engine: str, loads: Sequence[int]) -> int | None:
        """The load at which an engine's prompt throughput is highest: with more sessions it does not rise.

        Of those that it has runs at; None if they have no repeat in common.
        """
        found = self._paired({sessions: self._at(engine, sessions) for sessions in loads})
        return max(found, key=lambda sessions: found[sessions][0]) if found else None

    def _at(self, engine: str, sessions: int) -> Mapping[int, Result]:
        return self._runs.get((engine, sessions), {})

    @staticmethod
    def _paired(runs: Mapping[T, Mapping[int, Result]]) -> dict[T, tuple[float, float]]:
        """Prompt throughput and hit rate, means over the repeats that all who have any have; nothing if there are none.

        The geometric mean of throughputs: its ratio is the mean of the repeats' ratios.
        """
        made = {name: of for name, of in runs.items() if of}
        shared = set.intersection(*map(set, made.values())) if made else set()
        return {
            name: (
                _geometric_mean([of[repeat].value(PROMPT) or 0.0 for repeat in shared]),
                fmean(of[repeat].value(HIT_RATE) or 0.0 for repeat in shared),
            )
            for name, of in made.items()
            if shared
        }


def _geometric_mean(values: Sequence[float]) -> float:
    return exp(fmean(map(log, values))) if all(values) else 0.0
