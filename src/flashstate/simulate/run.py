"""One run: a system under one load, requests lasting as recorded."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from flashstate.core.allocations import KV
from flashstate.simulate.conversation import Conversation
from flashstate.simulate.engine_cache import EngineCache
from flashstate.simulate.presets import CacheGeometry
from flashstate.simulate.result import RunKey, RunResult, Tally
from flashstate.simulate.rules import Rules
from flashstate.simulate.schedule import Request, events, schedule
from flashstate.simulate.systems import System

Trajectories = Sequence[tuple[Conversation, ...]]


@dataclass(frozen=True, slots=True)
class Played:
    """What the recorded clock plays, whatever the system. `events` as in `schedule`, `working_set` in blocks."""

    requests: list[Request]
    events: list[tuple[float, bool, Request]]
    working_set: float


def play(trajectories: Trajectories, rules: Rules, geometry: CacheGeometry) -> Played:
    """The schedule of a load and a seed, for any number of runs."""
    requests = schedule(trajectories, rules, geometry.block_tokens)
    for request in requests:
        request.path.know_keys()
    return Played(requests, list(events(requests)), working_set(requests, rules, geometry))


def run_recorded(
    key: RunKey, played: Played, rules: Rules, geometry: CacheGeometry, system: System
) -> RunResult:
    """The recorded clock: prefill takes no time, and the schedule is the same for every system."""
    began = perf_counter()
    engine = system.build(geometry, played.requests)
    tally, load = Tally(), Load(engine, rules)
    for now, is_end, request in played.events:
        if now >= rules.duration_s:
            break
        load.until(now)
        if is_end:
            engine.end(request, now)
            continue
        attribution = engine.start(request, now)
        if rules.is_measured(now):
            tally.add(attribution)
    load.until(rules.duration_s)
    return summarise(key, tally, load, played.working_set, geometry, began)


class Load:
    """Time averages over the measured window, and what was evicted in it."""

    def __init__(self, engine: EngineCache, rules: Rules) -> None:
        self._engine = engine
        self._rules = rules
        self._now = 0.0
        self._block_seconds = 0.0
        self._checkpoint_seconds = 0.0
        self._evicted_before: Counter[str] | None = None

    def until(self, now: float) -> None:
        """Nothing has happened since the last call; at `now` something will."""
        rules = self._rules
        if now >= rules.warmup_s:
            if self._evicted_before is None:
                self._evicted_before = self._engine.cache.counters.evictions.copy()
            elapsed = min(now, rules.duration_s) - max(self._now, rules.warmup_s)
            self._block_seconds += elapsed * self._engine.pool.used
            self._checkpoint_seconds += elapsed * self._checkpoints()
        self._now = now

    @property
    def blocks(self) -> float:
        """Blocks held by anyone, on average."""
        return self._block_seconds / (self._rules.duration_s - self._rules.warmup_s)

    @property
    def capacity(self) -> float:
        """Blocks there are, as the engine counts them."""
        return self._engine.pool.capacity

    @property
    def checkpoints(self) -> float:
        """Checkpoints kept, on average."""
        return self._checkpoint_seconds / (self._rules.duration_s - self._rules.warmup_s)

    def _checkpoints(self) -> int:
        counters = self._engine.cache.counters
        return counters.captures.total() - counters.evictions.total() + counters.evictions[KV]

    def evictions(self) -> dict[str, int]:
        """What was evicted in the window, by tier."""
        return dict(self._engine.cache.counters.evictions - (self._evicted_before or Counter()))


def summarise(
    key: RunKey, tally: Tally, load: Load, working_set_blocks: float, geometry: CacheGeometry, began: float
) -> RunResult:
    """The result of a run whose first moment was `began` on the performance counter."""
    done = tally.attributions
    return RunResult(
        key=key,
        requests=len(done),
        prompt_tokens=sum(a.prompt_tokens for a in done),
        resumed_tokens=sum(a.resumed_tokens for a in done),
        ideal_tokens=sum(a.ideal_tokens for a in done),
        missed_tokens=tally.missed(),
        median_uncached_tokens=float(median(tally.uncached)) if done else 0.0,
        occupancy=load.blocks / min(load.capacity, geometry.blocks),
        resident_checkpoints=load.checkpoints,
        working_set=working_set_blocks / geometry.blocks,
        evictions=load.evictions(),
        wall_s=perf_counter() - began,
    )


def working_set(requests: Sequence[Request], rules: Rules, geometry: CacheGeometry) -> float:
    """Blocks that the live conversations would hold if each kept just its latest turn, averaged over the window.

    A conversation lives from its first request to the end of its last, that of a session's last trajectory to the
    run's end.
    """
    turns: dict[int, list[Request]] = defaultdict(list)
    mains: dict[Hashable, int] = {}
    last_play: dict[int, Hashable] = {}
    for request in requests:
        play = request.path.namespace
        turns[request.conversation].append(request)
        if play not in mains:  # the main agent comes first
            mains[play] = request.conversation
            last_play[request.session] = play
    lasting = {mains[play] for play in last_play.values()}
    block_seconds = 0.0
    for conversation, asked in turns.items():
        ends = [request.start_s for request in asked[1:]]
        ends.append(rules.duration_s if conversation in lasting else asked[-1].end_s)
        for request, end in zip(asked, ends, strict=True):
            seconds = min(end, rules.duration_s) - max(request.start_s, rules.warmup_s)
            blocks = -(-len(request.path) // geometry.block_tokens) + geometry.checkpoint_blocks
            block_seconds += max(seconds, 0.0) * blocks
    return block_seconds / (rules.duration_s - rules.warmup_s)
