"""Continuous batching as vLLM does it: who runs, what the next step computes, who is preempted for room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from flashstate.core.counters import Attribution
from flashstate.simulate.engine_cache import EngineCache, Running
from flashstate.simulate.schedule import Request
from flashstate.simulate.timing import TimeModel
from flashstate.simulate.waiting import Guard, Order, Waiting, allowed


@dataclass(slots=True, eq=False)
class Job(Waiting):
    """A request on its way through the engine. `tokens`: to compute before it decodes."""

    request: Request
    queued_s: float
    """When it last joined the queue."""
    waited_s: float = 0.0
    """In the queue, so far."""
    computed: int = 0
    generated: int = 0
    running: Running | None = None
    attribution: Attribution | None = None
    has_first_token: bool = False

    @property
    def is_prefilling(self) -> bool:
        """Whether it computes tokens that are known."""
        return self.computed < self.tokens

    @property
    def is_done(self) -> bool:
        """Whether all its output is there."""
        return not self.is_prefilling and self.generated >= self.request.ask.output_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """`steps` steps of one batch: chunks [start, stop) of prompts, in one step only, and decodes of a token each."""

    seconds: float
    steps: int
    chunks: Sequence[tuple[Job, int, int]]
    decodes: Sequence[Job]
    running: int

    @property
    def decoded(self) -> int:
        """Tokens that the decodes put out."""
        return self.steps * len(self.decodes)


@dataclass(slots=True)
class Outcome:
    """What a step came to."""

    first_tokens: list[Job] = field(default_factory=list)
    ended: list[Job] = field(default_factory=list)
    put_out: int = 0
    """First tokens, one for each prefill that was completed."""


class Scheduler:
    """Running requests go first, in the order they were admitted; then waiting ones, while there is budget and room.

    A waiting request is admitted if all its known tokens fit; nobody overtakes the one whose turn it is. When blocks
    run out, the request admitted last is preempted: it waits again, and computes again what no state is kept of.
    """

    def __init__(self, cache: EngineCache, times: TimeModel, order: Order, guard: Guard | None) -> None:
        self.cache = cache
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.preempted = 0
        self._times = times
        self._order = order
        self._guard = guard
        self._most_running = min(times.max_sequences, cache.most_running)
        self._resumable: dict[int, int] = {}
        """Where waiting jobs would resume, by serial, until the cache changes."""
        self._changes = 0

    def fits_alone(self, request: Request) -> bool:
        """Whether the engine could ever serve `request`."""
        blocks = -(-len(request.path) // self.cache.block_tokens) + self.cache.checkpoint_blocks
        return blocks <= self.cache.pool.capacity

    def add(self, job: Job, now: float) -> None:
        """`job` joins the queue."""
        job.queued_s = now
        self.waiting.append(job)
        self._resumable.pop(job.serial, None)
        self.cache.wait(job.request, job.tokens, now)

    def plan(self, now: float, seconds: float) -> Step | None:
        """The next step, or as many alike as begin in `seconds`; None if there is nothing to do."""
        chunks: list[tuple[Job, int, int]] = []
        decodes: list[Job] = []
        budget, preempted = self._times.max_batched_tokens, self.preempted
        for job in list(self.running):
            if budget == 0 or job.running is None:
                continue
            stop = self._next_stop(job, budget)
            if not self._reserve(job, stop, now):
                continue
            budget -= stop - job.computed
            if job.is_prefilling:
                chunks.append((job, job.computed, stop))
            else:
                decodes.append(job)
        while budget > 0 and self.preempted == preempted and (admitted := self._admit_next(now)):
            stop = self._next_stop(admitted, budget)
            self.cache.grow(_held(admitted), stop, now)
            budget -= stop - admitted.computed
            chunks.append((admitted, admitted.computed, stop))
        if not chunks and not decodes:
            return None
        return self._step(chunks, decodes, seconds)

    def complete(self, step: Step, now: float) -> Outcome:
        """`step` is over at `now`."""
        outcome = Outcome()
        for job, _, stop in step.chunks:
            job.computed = stop
            self.cache.passed(_held(job), stop, now)
            if not job.is_prefilling and job.generated < job.request.ask.output_tokens:
                job.generated += 1
                outcome.put_out += 1
            if not job.is_prefilling and not job.has_first_token:
                job.has_first_token = True
                outcome.first_tokens.append(job)
        for job in step.decodes:
            job.computed += step.steps
            job.generated += step.steps
        outcome.ended = [job for job in self.running if job.is_done]
        for job in outcome.ended:
            self.cache.stop(_held(job), job.computed, now, job.request.ask.stop)
            job.running = None
            if self._guard is not None:
                self._guard.ended(job, now)
        if outcome.ended:
            self.running = [job for job in self.running if job.running is not None]
        return outcome

    def _next_stop(self, job: Job, budget: int) -> int:
        if not job.is_prefilling:
            return job.computed + 1
        return min(job.tokens, job.computed + min(self._times.long_prefill_tokens, budget))

    def _step(self, chunks: list[tuple[Job, int, int]], decodes: list[Job], seconds: float) -> Step:
        times = self._times
        batch, context = len(decodes), sum(job.computed for job in decodes)
        steps = 1
        if not chunks:
            steps = times.steps_until(batch, context, seconds, min(map(self._alike, decodes)))
        prefill = sum(times.prefill.seconds(start, stop) for _, start, stop in chunks)
        return Step(
            prefill + times.decode_s(batch, context, steps), steps, chunks, decodes, len(self.running)
        )

    def _alike(self, job: Job) -> int:
        """Decode steps before `job` ends or fills the blocks it has."""
        room = len(_held(job).kv) * self.cache.block_tokens - job.computed
        return min(job.request.ask.output_tokens - job.generated, room)

    # --- who runs ---------------------------------------------------------------------------------------

    def _admit_next(self, now: float) -> Job | None:
        if not self.waiting or len(self.running) >= self._most_running:
            return None
        if self._changes != self.cache.changes:
            self._changes = self.cache.changes
            self._resumable.clear()
        turns = allowed(self._guard, self.waiting, self._resumes_at, now, idle=not self.running)
        job = self._order.next(turns, self._resumes_at, now)
        if job is None:
            return None
        assert isinstance(job, Job)
        if not self.cache.fits(job.request, job.tokens):
            return None
        self.waiting.remove(job)
        self.running.append(job)
        job.waited_s += now - job.queued_s
        again = job.attribution is not None
        job.running = self.cache.admit(job.request, job.tokens, now, again=again)
        job.attribution = job.attribution or job.running.attribution
        job.computed = job.running.resumed
        if self._guard is not None:
            self._guard.started(job)
        return job

    def _resumes_at(self, turn: Waiting) -> int:
        assert isinstance(turn, Job)
        if turn.serial not in self._resumable:
            self._resumable[turn.serial] = self.cache.resumable(turn.request, turn.tokens)
        return self._resumable[turn.serial]

    def _reserve(self, job: Job, stop: int, now: float) -> bool:
        """Blocks for `job` up to `stop` tokens; False if it had to be preempted itself."""
        running = _held(job)
        short = self.cache.blocks_short(running, stop)
        if short:
            while not self.cache.has_room(short):
                victim = self.running.pop()
                self._preempt(victim, now)
                if victim is job:
                    return False
            self.cache.grow(running, stop, now)
        return True

    def _preempt(self, job: Job, now: float) -> None:
        self.preempted += 1
        self.cache.stop(_held(job), job.computed, now, "")
        job.running = None
        if self._guard is not None:
            self._guard.ended(job, now)
        job.tokens = job.request.ask.prompt_tokens + job.generated
        job.computed = 0
        self.add(job, now)


def _held(job: Job) -> Running:
    assert job.running is not None, job
    return job.running
