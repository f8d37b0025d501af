"""The results of `flashstate simulate`, as they are shown: by policy and load, over seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from flashstate.files import check_regular

KIND: Final = "flashstate simulate"
FORMAT: Final = 1

OURS: Final = "flashstate"
BOUND: Final = "clairvoyant"
BOUNDS: Final = (BOUND, "infinite")
"""What no policy could do: never the best of a table."""
MISS_REASONS: Final = ("placement", "capacity", "dependency")

_MOST: Final = 1e15
"""No figure of a run is larger, so that sums over runs stay finite."""


class ReportError(Exception):
    """A file that cannot be reported on. One line: the file and the reason."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run's figures. Tokens in tokens, `occupancy` and `working_set` over the cache; `served`: see Served."""

    policy: str
    sessions: int
    seed: int
    requests: int
    prompt_tokens: int
    resumed_tokens: int
    ideal_tokens: int
    missed_tokens: Mapping[str, int]
    median_uncached_tokens: float
    occupancy: float
    resident_checkpoints: float
    working_set: float
    evictions: Mapping[str, int]
    served: Mapping[str, float]

    @property
    def hit_rate(self) -> float:
        """Resumed over prompt tokens."""
        return self.resumed_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def ideal_rate(self) -> float:
        """The hit rate of resuming every request at its ideal position."""
        return self.ideal_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def a_request(self, amount: float) -> float:
        """An amount of the whole run, a request."""
        return amount / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class Figure:
    """What is shown of runs. `name` is how it is called, `show` writes a value; `of` is None where a run has none."""

    name: str
    hint: str
    of: Callable[[Run], float | None]
    show: Callable[[float], str]
    higher_is_better: bool = False


@dataclass(frozen=True, slots=True)
class Mean:
    """A figure of a policy at a load: mean over seeds, half the range between them, and how many there were."""

    value: float
    spread: float
    seeds: int


def share(value: float) -> str:
    """A share, as the field writes hit rates: 0.946."""
    return f"{round(value, 3) + 0.0:.3f}"  # no -0.000


def tokens(value: float) -> str:
    """Tokens: 12,345."""
    return f"{value:,.0f}"


def seconds(value: float) -> str:
    """A time in seconds: 12.4."""
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _missed(reason: str) -> Callable[[Run], float]:
    return lambda run: run.a_request(run.missed_tokens[reason])


def _served(name: str) -> Callable[[Run], float | None]:
    return lambda run: run.served.get(name)


HIT_RATE: Final = Figure(
    "Hit rate", "prompt tokens that were not computed", lambda r: r.hit_rate, share, True
)
REDUNDANT: Final = Figure(
    "Redundant prefill",
    "prompt tokens a request, computed though an earlier request had computed them",
    lambda r: r.a_request(r.ideal_tokens - r.resumed_tokens),
    tokens,
)
UNCACHED: Final = Figure(
    "Median uncached",
    "prompt tokens computed by the middle request",
    lambda r: r.median_uncached_tokens,
    tokens,
)
OCCUPANCY: Final = Figure("Occupancy", "blocks in use, of the cache's", lambda r: r.occupancy, share)
CHECKPOINTS: Final = Figure("Checkpoints", "kept, on average", lambda r: r.resident_checkpoints, tokens)
EVICTIONS: Final = Figure(
    "Evictions", "units or allocations a request", lambda r: r.a_request(sum(r.evictions.values())), seconds
)
MISSED: Final = tuple(
    Figure(f"Missed: {reason}", hint, _missed(reason), tokens)
    for reason, hint in zip(
        MISS_REASONS,
        (
            "tokens a request: no checkpoint was ever taken there",
            "tokens a request: its KV was evicted",
            "tokens a request: KV there, checkpoint gone",
        ),
        strict=True,
    )
)
SERVED: Final = (
    Figure("Prompt throughput", "tokens a minute and GPU", _served("prompt_tokens_per_min"), tokens, True),
    Figure("Output throughput", "tokens a minute and GPU", _served("output_tokens_per_min"), tokens, True),
    Figure("TTFT p50", "seconds to the first token", _served("ttft_p50_s"), seconds),
    Figure("TTFT p90", "seconds to the first token", _served("ttft_p90_s"), seconds),
    Figure("Latency p50", "seconds, whole request", _served("latency_p50_s"), seconds),
    Figure("Latency p90", "seconds, whole request", _served("latency_p90_s"), seconds),
    Figure("Worst wait", "seconds in the queue", _served("worst_wait_s"), seconds),
    Figure("Unserved", "requests that still wait for a first token at the end", _served("unserved"), tokens),
)
"""Known to the engine clock only."""

_ALWAYS: Final = (HIT_RATE, REDUNDANT, UNCACHED, OCCUPANCY, CHECKPOINTS, EVICTIONS, *MISSED)


@dataclass(frozen=True)
class Simulation:
    """The runs of one setup. `policies`: those that ran, with a line on each, in the order to show them."""

    geometry: str
    blocks: int
    title: str
    setup: Mapping[str, Any]
    about: Mapping[str, Any]
    policies: Mapping[str, str]
    runs: Sequence[Run]

    @cached_property
    def loads(self) -> list[int]:
        """Concurrent sessions, ascending."""
        return sorted({run.sessions for run in self.runs})

    @property
    def seeds(self) -> int:
        """How many seeds the loads were run with."""
        return len({run.seed for run in self.runs})

    def mean(self, figure: Figure, policy: str, sessions: int) -> Mean | None:
        """Over seeds; None where nothing was run, or has no such figure."""
        return _mean(figure.of(run) for run in self._by_cell.get((policy, sessions), ()))

    def has(self, figure: Figure) -> bool:
        """Whether any run has it."""
        return any(figure.of(run) is not None for run in self.runs)

    def is_partial(self, policy: str, sessions: int) -> bool:
        """Whether another policy was run with more seeds at this load: then the means are not of the same work."""
        runs = {name: len(self._by_cell.get((name, sessions), ())) for name in self.policies}
        return 0 < runs[policy] < max(runs.values())

    def ideal(self, sessions: int) -> Mean | None:
        """The hit rate of resuming every request at its ideal position. By the recorded clock it has no policy."""
        return _mean(run.ideal_rate for run in self.runs if run.sessions == sessions)

    def working_set(self, sessions: int) -> Mean | None:
        """What the live conversations need to stay resident, over the cache. By the recorded clock it has no policy."""
        return _mean(run.working_set for run in self.runs if run.sessions == sessions)

    @cached_property
    def cliff(self) -> float | None:
        """Sessions at which the working set reaches the cache, between the loads that were run; None: nowhere."""
        points = [(n, mean.value) for n in self.loads if (mean := self.working_set(n)) is not None]
        if points and points[0][1] >= 1:
            return float(points[0][0])
        for (low, before), (high, after) in pairwise(points):
            if before < 1 <= after:
                return low + (1 - before) / (after - before) * (high - low)
        return None

    def is_past_cliff(self, sessions: int) -> bool:
        """Whether the working set no longer fits."""
        mean = self.working_set(sessions)
        return mean is not None and mean.value >= 1

    def best(self, figure: Figure, sessions: int) -> str | None:
        """The policy that does best at a load, bounds aside."""
        means = {
            name: mean.value
            for name in self.policies
            if name not in BOUNDS and (mean := self.mean(figure, name, sessions)) is not None
        }
        if len(means) < 2:
            return None
        return max(means, key=lambda name: means[name] if figure.higher_is_better else -means[name])

    def below_bound(self, policy: str, sessions: int) -> float | None:
        """How far the hit rate is below the clairvoyant's, over the seeds that both ran."""
        bound = {run.seed: run.hit_rate for run in self._by_cell.get((BOUND, sessions), ())}
        gaps = [
            bound[run.seed] - run.hit_rate
            for run in self._by_cell.get((policy, sessions), ())
            if run.seed in bound
        ]
        return fmean(gaps) if gaps else None

    @cached_property
    def _by_cell(self) -> Mapping[tuple[str, int], list[Run]]:
        cells: dict[tuple[str, int], list[Run]] = {}
        for run in self.runs:
            cells.setdefault((run.policy, run.sessions), []).append(run)
        return cells


def _mean(values: Iterable[float | None]) -> Mean | None:
    known = [value for value in values if value is not None]
    return Mean(fmean(known), (max(known) - min(known)) / 2, len(known)) if known else None


def read_simulation(path: Path) -> Simulation:
    """Reads a results file of `flashstate simulate`. Raises ReportError."""
    try:
        check_regular(path)
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not JSON ({error})") from None
    try:
        found = simulation(document)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        raise ReportError(
            f"{path}: is not a results file of `flashstate simulate --json`, nor records of requests"
        ) from None
    if not found.runs:
        raise ReportError(f"{path}: holds no runs")
    return found


def simulation(document: Mapping[str, Any]) -> Simulation:
    """The content of a results file. Raises KeyError, TypeError or ValueError where it is not one."""
    if (document["kind"], document["format"]) != (KIND, FORMAT):
        raise ValueError(document["kind"])
    runs = [_run(row) for row in document["results"]]
    ran = {run.policy for run in runs}
    titles = document["policies"]
    policies = {policy: str(titles[policy]) for policy in titles if policy in ran}
    policies |= dict.fromkeys(sorted(ran - policies.keys()), "")
    about = {key: document[key] for key in ("date", "machine", "command")}
    setup = document["setup"]
    geometry, blocks = setup["geometry"]["name"], setup["geometry"]["blocks"]
    return Simulation(str(geometry), int(blocks), _title(setup), setup, about, policies, runs)


def _title(setup: Mapping[str, Any]) -> str:
    parts = [setup["geometry"]["name"], f"{setup['clock']} clock", f"{setup['rules']['gaps']} gaps"]
    serving = setup.get("serving")
    if serving is not None:
        parts.append(f"{serving['order']} order")
        parts += [] if serving["guard"] is None else [f"guard {serving['guard']:g}"]
    return ", ".join(parts)


def _run(row: Mapping[str, Any]) -> Run:
    key = row["key"]
    names = [name for name in Run.__slots__ if name not in ("policy", "sessions", "seed")]
    run = Run(str(key["policy"]), int(key["sessions"]), int(key["seed"]), *(row[name] for name in names))
    values: list[Any] = [figure.of(run) for figure in _ALWAYS] + [run.ideal_rate, run.working_set]
    values += [run.sessions, run.seed, run.requests, *run.served.values()]
    if not all(abs(value) <= _MOST for value in values):  # nor is NaN
        raise ValueError(key)
    return run
