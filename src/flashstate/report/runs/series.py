"""A run over time, in slices of equal width."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from flashstate.report.runs.figures import Costs, added, profit, share
from flashstate.report.runs.request import Request, Run

_MOST_SLICES: Final = 48
_FEWEST_SLICES: Final = 6
_REQUESTS_A_SLICE: Final = 6
"""Of the shortest run, so that a slice's median says something."""
_ROUND: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)


@dataclass(slots=True)
class Slice:
    """What fell into one slice of `seconds`, at the middle `at_s`.

    Prompts count where their first token came, output tokens evenly from the first token to the end, a latency where
    it ended.
    """

    at_s: float
    seconds: float
    first: list[Request] = field(default_factory=list)
    ended: list[Request] = field(default_factory=list)
    output_tokens: float = 0.0

    @property
    def prompt_tokens_per_min(self) -> float:
        """Tokens a minute, cached ones too."""
        return self._per_min(sum(request.prompt_tokens for request in self.first))

    @property
    def output_tokens_per_min(self) -> float:
        """Tokens a minute."""
        return self._per_min(self.output_tokens)

    @property
    def hit_rate(self) -> float | None:
        """Cached over prompt tokens; None where there are none, or nobody counted."""
        return share(added(r.cached_tokens for r in self.first), sum(r.prompt_tokens for r in self.first))

    @property
    def ttft_s(self) -> float | None:
        """The median, seconds."""
        return _median(r.first_s - r.start_s for r in self.first if r.first_s is not None)

    @property
    def latency_s(self) -> float | None:
        """The median, seconds."""
        return _median(request.end_s - request.start_s for request in self.ended)

    @property
    def recomputed_tokens_per_min(self) -> float | None:
        """Tokens a minute that an earlier request had computed."""
        tokens = added(request.recomputed_tokens for request in self.first)
        return None if tokens is None else self._per_min(tokens)

    def missed_tokens_per_min(self, reason: str) -> float | None:
        """Tokens a minute missed for this reason; None where no request's reasons are known."""
        known = [r.missed_tokens for r in self.first if r.missed_tokens is not None]
        return self._per_min(sum(missed.get(reason, 0) for missed in known)) if known else None

    def profit(self, costs: Costs) -> float | None:
        """Dollars a GPU-hour."""
        return profit(self.hit_rate, self.prompt_tokens_per_min, self.output_tokens_per_min, costs)

    def _per_min(self, tokens: float) -> float:
        return tokens / self.seconds * 60


def width_s(runs: Sequence[Run]) -> float:
    """One width for all runs, so that they can be told apart slice by slice: a round number of seconds."""
    ends = [max((request.end_s for request in run.requests), default=0.0) for run in runs]
    fewest = min((len(run.requests) for run in runs), default=0)
    slices = max(_FEWEST_SLICES, min(_MOST_SLICES, fewest // _REQUESTS_A_SLICE))
    least = max([*ends, 1e-3]) / slices
    if least > _ROUND[-1]:
        return math.ceil(least / _ROUND[-1]) * float(_ROUND[-1])
    if least < 1:
        scale = 10.0 ** math.floor(math.log10(least))
        return next(scale * step for step in (1, 2, 5, 10) if scale * step >= least)
    return float(next(step for step in _ROUND if step >= least))


def slices(run: Run, width: float) -> list[Slice]:
    """The whole run, warm-up too. The last slice is as wide as the run reaches, and left out if under half."""
    end_s = max((request.end_s for request in run.requests), default=0.0)
    number = math.ceil(end_s / width) or 1
    found = [Slice((n + 0.5) * width, width) for n in range(number)]
    for request in run.requests:
        if request.error is None:
            _sort_in(request, found, width)
    rest = end_s - (number - 1) * width
    if number > 1 and rest < width / 2:
        return found[:-1]
    found[-1].seconds, found[-1].at_s = rest or width, (number - 1) * width + (rest or width) / 2
    return found


def _sort_in(request: Request, found: Sequence[Slice], width: float) -> None:
    last = len(found) - 1
    found[min(last, int(request.end_s / width))].ended.append(request)
    if request.first_s is None:
        return
    first = min(last, int(request.first_s / width))
    found[first].first.append(request)
    duration = request.end_s - request.first_s
    if duration <= 0:
        found[first].output_tokens += request.output_tokens
        return
    for n in range(first, min(last, int(request.end_s / width)) + 1):
        overlap = min(request.end_s, (n + 1) * width) - max(request.first_s, n * width)
        if n == last:
            overlap = request.end_s - max(request.first_s, n * width)
        found[n].output_tokens += request.output_tokens * max(0.0, overlap) / duration


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return median(known) if known else None


OVER_TIME: Final[Mapping[str, tuple[str, Callable[[Slice], float | None]]]] = {
    "Prompt throughput": ("prompt tokens a minute, cached ones too", lambda s: s.prompt_tokens_per_min),
    "Output throughput": ("tokens generated a minute", lambda s: s.output_tokens_per_min),
    "Hit rate": ("prompt tokens that were not computed", lambda s: s.hit_rate),
    "Time to first token": ("median seconds; a lower line is better", lambda s: s.ttft_s),
    "Latency": ("median seconds of the requests that ended", lambda s: s.latency_s),
    "Recomputed tokens": (
        "a minute, that an earlier request had computed",
        lambda s: s.recomputed_tokens_per_min,
    ),
    "Missed: placement": (
        "prompt tokens a minute: no checkpoint was taken there",
        lambda s: s.missed_tokens_per_min("placement"),
    ),
    "Missed: capacity": (
        "prompt tokens a minute: its KV was evicted",
        lambda s: s.missed_tokens_per_min("capacity"),
    ),
    "Missed: dependency": (
        "prompt tokens a minute: KV there, checkpoint gone",
        lambda s: s.missed_tokens_per_min("dependency"),
    ),
}
