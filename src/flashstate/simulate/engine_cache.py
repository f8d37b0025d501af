"""One engine's cache in counted blocks: what requests hold, what is kept of them, what is given up for room."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from flashstate.core.base import Capture, StateCache
from flashstate.core.cache import HybridCache
from flashstate.core.counters import Attribution
from flashstate.core.path import TokenPath
from flashstate.core.placement.base import Placement, Prompt, Spot
from flashstate.core.placement.exact import Exact
from flashstate.core.state import REQUEST_END, Checkpoint
from flashstate.core.tree import KVBlock
from flashstate.core.two_pools import TwoPoolCache
from flashstate.simulate.pool import Pool, ids
from flashstate.simulate.schedule import Request

CHUNK_TOKENS: Final = 8192
"""vLLM's default for an API server on a large GPU: where states are exported, one comes from each prefill chunk."""


@dataclass(slots=True)
class Running:
    """A request that holds blocks: the KV it has or is about to compute, and its live state."""

    request: Request
    resumed: int
    kv: list[KVBlock]
    state: list[int]
    spots: deque[Spot]
    """Checkpoints still to take, ascending."""
    attribution: Attribution | None
    """None for a preempted request that starts again."""


class EngineCache:
    """Drives a cache of `core` as an engine would, with blocks that are only numbers.

    A request holds a live state and KV; its end checkpoint takes over that state. KV that is recomputed fills the
    block that still holds it. A request that goes on exactly where another ended extends its terminal block in place;
    one that branches inside a block gets a copy.

    A clock without steps calls `start` and `end`. One with steps calls `wait`, `fits` and `admit`, then `has_room`,
    `grow` and `passed` as tokens are computed, and `stop`: the last token that comes out is not computed.
    """

    def __init__(self, cache: StateCache, placement: Placement, pool: Pool, checkpoint_blocks: int) -> None:
        self.cache = cache
        self.placement = placement
        self.pool = pool
        self.block_tokens = cache.block_tokens
        self.checkpoint_blocks = checkpoint_blocks
        self._running: dict[int, Running] = {}

    def start(self, request: Request, now: float) -> Attribution:
        """`request` resumes where it can, takes its blocks and leaves checkpoints inside its prompt."""
        running = self.admit(request, request.ask.prompt_tokens, now)
        self.grow(running, len(request.path), now)
        self.passed(running, request.ask.prompt_tokens, now)
        assert running.attribution is not None
        return running.attribution

    def end(self, request: Request, now: float) -> None:
        """`request` ends: its state is offered at its exact end, its blocks are let go."""
        self.stop(self._running[request.number], len(request.path), now, request.ask.stop)

    # --- step by step -----------------------------------------------------------------------------------

    @property
    def most_running(self) -> float:
        """Requests that may run at a time."""
        cache = self.cache
        return cache.slots // cache.slots_a_request if isinstance(cache, TwoPoolCache) else float("inf")

    @property
    def changes(self) -> int:
        """As long as it stays the same, so does what `resumable` says."""
        counters = self.cache.counters
        return counters.captures.total() + counters.evictions.total() + counters.admissions_refused

    def resumable(self, request: Request, tokens: int) -> int:
        """Where `request`, with `tokens` known, would resume now. Does not mutate."""
        state = self.cache.lookup(request.path.cut(tokens), tokens - 1)
        return state.position if state is not None else 0

    def wait(self, request: Request, tokens: int, now: float) -> None:
        """`request` joins the queue: what it would resume from is parked, where the cache does that."""
        cache = self.cache
        if isinstance(cache, HybridCache) and not isinstance(cache, TwoPoolCache):
            state = cache.lookup(request.path.cut(tokens), tokens - 1)
            if state is not None:
                cache.park(request.number, state.unit, now)

    def fits(self, request: Request, tokens: int) -> bool:
        """Whether `tokens` of `request` and a live state fit beside what runs, if the cache gives up all else."""
        resident = set(ids(self.cache.resident(request.path.cut(tokens), tokens - 1)))
        wanted = -(-tokens // self.block_tokens) - len(resident) + self.checkpoint_blocks
        return len(self._live() | resident) + wanted <= self.pool.capacity

    def admit(self, request: Request, tokens: int, now: float, *, again: bool = False) -> Running:
        """`request` resumes where it can and takes its live state and the resident KV of its first `tokens` tokens.

        `again`: it was preempted, and is no new one.
        """
        cache, prompt = self.cache, request.path.cut(tokens)
        limit = tokens - 1
        state = cache.lookup(prompt, limit)
        resumed = state.position if state is not None else 0
        attribution = None if again else cache.observe(prompt, resumed)
        turned_back = cache.learn(request.number, prompt, now)
        if not again:
            self.placement.learn(turned_back, tokens - resumed)
        cache.admit(request.number, prompt, resumed, now)
        kv = cache.resident(prompt, limit)
        resident = max(len(kv) * self.block_tokens, resumed)
        if state is not None and state.is_open and len(state.kv) > len(kv):
            kv.append(state.kv[-1])
        spots = self._spots(prompt, resumed, resident)
        live_state = self.pool.new(self.checkpoint_blocks)
        running = Running(request, resumed, kv, live_state, deque(spots), attribution)
        self._running[request.number] = running
        self.pool.hold(ids(kv))
        self.pool.hold(live_state)
        return running

    def _spots(self, path: TokenPath, resumed: int, resident: int) -> Sequence[Spot]:
        """Checkpoints to take inside the prompt `path`, of which so many tokens of KV are resident, in whole blocks."""
        prompt = Prompt(len(path), resumed, resident, self.block_tokens)
        if not isinstance(self.placement, Exact):
            return self.placement.spots(prompt)
        to_the_token = max(self.cache.resident_tokens(path, len(path) - 1), resumed)
        return self.placement.one_a_chunk(
            replace(prompt, resident=to_the_token), CHUNK_TOKENS, self.cache.cost
        )

    def blocks_short(self, running: Running, tokens: int) -> int:
        """Blocks that `running` lacks to hold `tokens` tokens."""
        return max(-(-tokens // self.block_tokens) - len(running.kv), 0)

    def has_room(self, blocks: int) -> bool:
        """Whether so many more fit beside what runs, if the cache gives up all else."""
        return self.pool.free >= blocks or len(self._live()) + blocks <= self.pool.capacity

    def grow(self, running: Running, tokens: int, now: float) -> None:
        """`running` takes the blocks it lacks for `tokens` tokens; the cache makes room."""
        new: list[KVBlock] = [(block,) for block in self.pool.new(self.blocks_short(running, tokens))]
        running.kv += new
        self.pool.hold(ids(new))
        self._make_room(now)

    def passed(self, running: Running, tokens: int, now: float) -> None:
        """`running` has computed `tokens` tokens: checkpoints up to there are offered."""
        spots, pool, blocks = running.spots, self.pool, self.checkpoint_blocks
        while spots and spots[0].position <= tokens:
            self._keep(running, spots.popleft(), pool.new(blocks), now)
            if pool.free < 0:
                self._make_room(now)

    def stop(self, running: Running, tokens: int, now: float, hint: str) -> None:
        """`running` ends, or is preempted, with `tokens` tokens computed: its state there is offered."""
        request = running.request
        del self._running[request.number]
        cache, path = self.cache, request.path
        kv = running.kv[: -(-tokens // self.block_tokens)]
        if tokens > 0:
            cache.computed(request.number, path, tokens, now, hint)
        if self.placement.keeps_request_end and tokens > running.resumed:
            self._keep(running, Spot(tokens, REQUEST_END), running.state, now)
        if tokens > 0:
            self._own(cache.file_kv(path, tokens, kv, now, request=running.request.number))
        self.pool.let_go(cache.release(request.number, now))
        self.pool.let_go(ids(running.kv))
        self.pool.let_go(running.state)

    # --- inside -----------------------------------------------------------------------------------------

    def _keep(self, running: Running, spot: Spot, blocks: Sequence[int], now: float) -> None:
        checkpoint = Checkpoint(spot.position, tuple(blocks), spot.kind)
        kv = running.kv[: -(-spot.position // self.block_tokens)]
        room = self.pool.free >= (0 if spot.kind == REQUEST_END else self.checkpoint_blocks)
        request = running.request
        self._own(self.cache.capture(request.path, checkpoint, kv, now, room=room, request=request.number))

    def _own(self, capture: Capture) -> None:
        self.pool.hold(capture.taken)
        if capture.freed:
            self.pool.let_go(capture.freed)

    def _make_room(self, now: float) -> None:
        pool, evict = self.pool, self.cache.evict
        while pool.free < 0:
            eviction = evict(now)
            if eviction is None:
                return
            pool.let_go(eviction.freed)

    def _live(self) -> set[int]:
        return {block for running in self._running.values() for block in (*ids(running.kv), *running.state)}
