"""One run by the engine's clock: requests wait, are prefilled in chunks and decode together, in modelled time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from time import perf_counter
from typing import Any, Final

from flashstate.simulate.closed_loop import Clients, Turn
from flashstate.simulate.engine_cache import EngineCache
from flashstate.simulate.presets import CacheGeometry
from flashstate.simulate.result import RunKey, RunResult, Tally
from flashstate.simulate.rules import Rules
from flashstate.simulate.run import Load, Trajectories, summarise, working_set
from flashstate.simulate.schedule import Request
from flashstate.simulate.scheduler import Job, Scheduler, Step
from flashstate.simulate.served import Served
from flashstate.simulate.systems import System
from flashstate.simulate.timing import TimeModel, time_model
from flashstate.simulate.waiting import FirstCome, Guard, make_order, order_names

Check = Callable[[EngineCache], None]


@dataclass(frozen=True, slots=True)
class Serving:
    """How an engine serves. `timing`: None for the geometry's preset. `guard`: theta, None for no guard."""

    timing: TimeModel | None = None
    order: str = FirstCome.name
    guard: float | None = None

    def __post_init__(self) -> None:
        if self.order not in order_names():
            raise ValueError(f"order {self.order!r}: unknown; one of {', '.join(order_names())}")
        if self.guard is not None and not 0 < self.guard < inf:
            raise ValueError(f"guard {self.guard}: must be finite and above 0")

    def time_model(self, geometry: CacheGeometry) -> TimeModel:
        """Steps take so long."""
        return self.timing or time_model(geometry.name, geometry.cost)

    def as_json(self, geometry: CacheGeometry) -> dict[str, Any]:
        """Plain values."""
        return {"timing": self.time_model(geometry).as_json(), "order": self.order, "guard": self.guard}


AS_PUBLISHED: Final = Serving()

_REFUSAL_S: Final = 1.0
"""How long it takes to be told that a request fits no cache."""


def run_engine(
    key: RunKey,
    trajectories: Trajectories,
    rules: Rules,
    geometry: CacheGeometry,
    system: System,
    serving: Serving = AS_PUBLISHED,
    check: Check | None = None,
) -> RunResult:
    """The engine's clock: when a turn ends depends on the cache and the load. `check` is called after every event."""
    began = perf_counter()
    engine = Engine(trajectories, rules, geometry, system, serving)
    engine.run(check)
    requests = engine.requests()
    served = engine.served.figures(engine.unserved(), engine.clients.finished_s, engine.scheduler.preempted)
    result = summarise(
        key, engine.tally, engine.load, working_set(requests, rules, geometry), geometry, began
    )
    return replace(result, served=served)


class Engine:
    """Pops an event, handles it, pushes what follows: turns that arrive, and the step in flight that ends."""

    def __init__(
        self,
        trajectories: Trajectories,
        rules: Rules,
        geometry: CacheGeometry,
        system: System,
        serving: Serving,
    ) -> None:
        times = serving.time_model(geometry)
        cache = system.build(geometry, ())
        guard = Guard(serving.guard, cache.pool.capacity) if serving.guard is not None else None
        self.rules = rules
        self.clients = Clients(trajectories, rules, geometry.block_tokens)
        self.scheduler = Scheduler(cache, times, make_order(serving.order, times.prefill), guard)
        self.served = Served(rules, times.gpus)
        self.tally = Tally()
        self.load = Load(cache, rules)
        self.cache = cache
        self._arrivals: list[tuple[float, int, Turn]] = []
        self._serials = count()
        self._jobs: list[Job] = []
        self._turns: dict[Job, Turn] = {}
        self._ends: dict[Job, float] = {}

    def run(self, check: Check | None = None) -> None:
        """Until the rules' end; of a step in flight then, the part before counts."""
        self._send(self.clients.first())
        step, began, end = None, 0.0, inf
        while (now := min(end, self._next_arrival())) < self.rules.duration_s:
            self.load.until(now)
            if step is not None and now == end:
                self._completed(step, began, now)
                step, end = None, inf
            else:
                self._arrive(now)
            if step is None and now < self._next_arrival():
                step = self.scheduler.plan(now, self._next_arrival() - now)
                if step is not None:
                    began, end = now, now + step.seconds
            if check is not None:
                check(self.cache)
        if step is not None:
            self.served.step(began, end, step.running, step.decoded)
        self.load.until(self.rules.duration_s)

    def requests(self) -> list[Request]:
        """All that were sent, by start, with when they ended."""
        return [replace(job.request, end_s=self._ends.get(job, inf)) for job in self._jobs]

    def unserved(self) -> list[float]:
        """How long those have waited, in seconds, that wait without a first token."""
        end = self.rules.duration_s
        return [
            job.waited_s + end - job.queued_s for job in self.scheduler.waiting if not job.has_first_token
        ]

    def _next_arrival(self) -> float:
        return self._arrivals[0][0] if self._arrivals else inf

    def _send(self, turns: Iterable[tuple[float, Turn]]) -> None:
        for time, turn in turns:
            heapq.heappush(self._arrivals, (time, next(self._serials), turn))

    def _arrive(self, now: float) -> None:
        _, _, turn = heapq.heappop(self._arrivals)
        request = self.clients.send(turn, now)
        if not self.scheduler.fits_alone(request):
            self.served.too_long += 1
            self._send(self.clients.answered(turn, now + _REFUSAL_S))
            return
        blocks = -(-len(request.path) // self.cache.block_tokens) + self.cache.checkpoint_blocks
        job = Job(request.number, request.conversation, now, request.ask.prompt_tokens, blocks, request, now)
        self._jobs.append(job)
        self._turns[job] = turn
        self.scheduler.add(job, now)

    def _completed(self, step: Step, began: float, now: float) -> None:
        outcome = self.scheduler.complete(step, now)
        served = self.served
        served.step(began, now, step.running, step.decoded)
        served.put_out(now, outcome.put_out)
        for job in outcome.first_tokens:
            if served.first_token(now, job.arrived_s, job.waited_s, job.request.ask.prompt_tokens):
                assert job.attribution is not None
                self.tally.add(job.attribution)
        for job in outcome.ended:
            served.ended(now, job.arrived_s)
            self._ends[job] = now
            self._send(self.clients.answered(self._turns.pop(job), now))
