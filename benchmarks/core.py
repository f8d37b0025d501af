"""Time of a lookup, a capture and an eviction against the number of cached states: `python -m benchmarks.core`.

The cache holds conversations under a few shared system prompts, each of 1 to 22 turns (median depth 33 KV blocks), a
state at every turn's end. Each is filed at once, as one request: turn by turn that takes five times as long. Then turns
come one by one: look up, run, capture the end, evict down to the size again. Medians are those of the best of ten
batches, since a busy machine only adds. Exits 1 if a median at 100,000 states is 50 us or more, or if it grows more
from 1,000 states to the largest cache than log2(states) does: 100,000, or 1,000,000 with --million (minutes more).
"""

from __future__ import annotations

import gc
import math
import random
import sys
from array import array
from dataclasses import dataclass, field
from itertools import accumulate, count
from statistics import median, quantiles
from time import perf_counter, perf_counter_ns

from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from flashstate.core.cache import HybridCache
from flashstate.core.path import Tokens
from flashstate.core.policies import make_policy, policy_names
from flashstate.core.state import REQUEST_END, Checkpoint
from flashstate.core.tree import KVBlock

LIMIT_US = 50.0
SIZES = (1_000, 100_000)
MILLION = 1_000_000
MIDDLE = 100_000
DEFAULT_POLICY = "forecast"
LIMITED = ("lookup", "capture", "evict")
OPERATIONS = (*LIMITED, "start", "end")
"""Start: learn and admit. End: computed and release; both tell the policy of all states of a conversation."""
TURNS = 22
BLOCKS_A_TURN = 3
CHECKPOINT_BLOCKS = 5
SYSTEM_PROMPTS = 8
BATCHES = 10
TURNS_A_BATCH = 300
SCALED_BLOCK = 16
FOOTPRINT = 50_000
"""States that do not fit in a processor's caches."""


@dataclass
class Workload:
    """Conversations over one cache. `block_tokens` only scales the token arrays: figures count blocks."""

    policy: str
    states: int
    block_tokens: int = SCALED_BLOCK
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        self.cache = HybridCache(
            block_tokens=self.block_tokens,
            policy=make_policy(self.policy),
            history_tokens=2 * self.states * BLOCKS_A_TURN * self.block_tokens,
        )
        self.lengths: list[int] = []
        self.serials: list[int] = []
        self._conversations = count()
        self._blocks = count()
        self._now = 0.0
        while len(self.cache) < self.states:
            self._converse(self._open(), self.dice.randint(1, TURNS))

    def _open(self) -> int:
        self.lengths.append(self.block_tokens * BLOCKS_A_TURN)
        self.serials.append(next(self._conversations))
        return len(self.lengths) - 1

    def _path(self, talk: int, length: int) -> Tokens:
        """Its system prompt, then tokens of its own."""
        serial, shared = self.serials[talk], self.block_tokens * BLOCKS_A_TURN
        ids = array("q", range(serial % SYSTEM_PROMPTS, SYSTEM_PROMPTS * shared, SYSTEM_PROMPTS))
        own = (serial + 1) << 24
        ids.extend(range(own, own + length - shared))
        path = Tokens(ids, self.block_tokens)
        path.key(length // self.block_tokens)  # the engine has hashed it already
        return path

    def _added(self) -> int:
        """Tokens of a turn."""
        size = self.block_tokens
        return self.dice.randint(size * (2 * BLOCKS_A_TURN - 1) // 2, size * (2 * BLOCKS_A_TURN + 1) // 2)

    def _kv(self, length: int) -> list[KVBlock]:
        return [(next(self._blocks),) for _ in range(-(-length // self.block_tokens))]

    def _checkpoint(self, length: int) -> Checkpoint:
        blocks = tuple(next(self._blocks) for _ in range(CHECKPOINT_BLOCKS))
        return Checkpoint(length, blocks, REQUEST_END)

    def _converse(self, talk: int, turns: int) -> None:
        """Files the first `turns` turns of `talk`, as one request that left a state at the end of each."""
        begun = self.lengths[talk]
        ends = list(accumulate((self._added() for _ in range(turns)), initial=begun))[1:]
        self.lengths[talk] = length = ends[-1]
        path, request, cache, kv = self._path(talk, length), object(), self.cache, self._kv(length)
        cache.learn(request, path, self._now)
        for end in ends:
            self._now += 0.1
            held = kv[: -(-end // self.block_tokens)]
            cache.capture(path, self._checkpoint(end), held, self._now, room=True, request=request)
        cache.computed(request, path, length, self._now)
        cache.release(request, self._now)

    def _turn(self, talk: int, times: dict[str, list[int]]) -> None:
        """The next turn of `talk`, evicting down to size. Appends to `times`, in nanoseconds."""
        self.lengths[talk] += self._added()
        length, self._now = self.lengths[talk], self._now + 0.1
        path, request, cache = self._path(talk, length), object(), self.cache
        kv, checkpoint = self._kv(length), self._checkpoint(length)

        began = perf_counter_ns()
        state = cache.lookup(path, length - 1)
        looked_up = perf_counter_ns()
        cache.learn(request, path, self._now)
        cache.admit(request, path, state.position if state else 0, self._now)
        started = perf_counter_ns()
        cache.computed(request, path, length, self._now)
        captures = perf_counter_ns()
        cache.capture(path, checkpoint, kv, self._now, room=True, request=request)
        captured = perf_counter_ns()
        cache.release(request, self._now)
        times["lookup"].append(looked_up - began)
        times["start"].append(started - looked_up)
        times["end"].append(captures - started + perf_counter_ns() - captured)
        times["capture"].append(captured - captures)
        while len(cache) > self.states:
            began = perf_counter_ns()
            cache.evict(self._now)
            times["evict"].append(perf_counter_ns() - began)

    def turn(self, times: dict[str, list[int]]) -> None:
        """One turn of a conversation picked at random."""
        talk = self.dice.randrange(len(self.lengths))
        if self.lengths[talk] > self.block_tokens * BLOCKS_A_TURN * TURNS:
            self.serials[talk] = next(self._conversations)
            self.lengths[talk] = self.block_tokens * BLOCKS_A_TURN
        self._turn(talk, times)


@dataclass(frozen=True)
class Row:
    """One line of the table, microseconds."""

    policy: str
    states: int
    block_tokens: int
    seconds: float
    medians: dict[str, float]
    p99: dict[str, float]


def measure(policy: str, states: int, block_tokens: int = SCALED_BLOCK) -> Row:
    """Build and time. Small caches are built many times and take turns, or the processor's caches would hold them."""
    began = perf_counter()
    copies = max(FOOTPRINT * SCALED_BLOCK // (states * block_tokens), 1)
    workloads = [Workload(policy, states, block_tokens) for _ in range(copies)]
    # As vLLM does after start: what stays is not walked by every garbage collection.
    gc.collect()
    gc.freeze()
    # Not so many turns that evictions make another cache of it.
    turns = min(TURNS_A_BATCH, copies * states // (4 * BATCHES))
    batches: list[dict[str, list[int]]] = []
    for _ in range(BATCHES):
        times: dict[str, list[int]] = {name: [] for name in OPERATIONS}
        for turn in range(turns):
            workloads[turn % copies].turn(times)
        batches.append(times)
    gc.unfreeze()
    return Row(
        policy,
        states,
        block_tokens,
        perf_counter() - began,
        {name: min(median(batch[name]) for batch in batches) / 1000 for name in OPERATIONS},
        {
            name: quantiles([ns for batch in batches for ns in batch[name]], n=100)[98] / 1000
            for name in OPERATIONS
        },
    )


def table(rows: list[Row]) -> Table:
    """What was measured."""
    out = Table("policy", "states", "block", title=f"core: median / p99, microseconds\n{machine()}")
    for column in (*OPERATIONS, "s"):
        out.add_column(column, justify="right")
    for row in rows:
        cells = [f"{row.medians[name]:.1f} / {row.p99[name]:.0f}" for name in OPERATIONS]
        out.add_row(row.policy, f"{row.states:,}", f"{row.block_tokens:,}", *cells, f"{row.seconds:.1f}")
    return out


def failures(rows: list[Row]) -> list[str]:
    """What exceeds its limit, one line each."""
    found = [
        f"{row.policy}: median {name} {row.medians[name]:.1f} us at {row.states:,} states: limit {LIMIT_US:.0f}"
        for row in rows
        if row.states == MIDDLE
        for name in LIMITED
        if row.medians[name] >= LIMIT_US
    ]
    by_size = {
        row.states: row for row in rows if row.policy == DEFAULT_POLICY and row.block_tokens == SCALED_BLOCK
    }
    small, large = by_size[min(by_size)], by_size[max(by_size)]
    allowed = math.log2(large.states) / math.log2(small.states)
    for name in LIMITED:
        growth = large.medians[name] / small.medians[name]
        if growth > allowed:
            found.append(
                f"{name}: {growth:.2f} times as slow at {large.states:,} states as at {small.states:,}: "
                f"limit {allowed:.2f}"
            )
    return found


def main() -> int:
    """Measure, print, judge."""
    console = Console(width=120)
    rows = []
    sizes = (*SIZES, MILLION) if "--million" in sys.argv[1:] else SIZES
    runs = [(DEFAULT_POLICY, states, SCALED_BLOCK) for states in sizes]
    runs += [(name, MIDDLE, SCALED_BLOCK) for name in policy_names() if name != DEFAULT_POLICY]
    # The published geometry of GLM-5.3-Flash, as far as its tokens fit in memory.
    runs.append((DEFAULT_POLICY, SIZES[0], 4352))
    for policy, states, block_tokens in runs:
        rows.append(measure(policy, states, block_tokens))
    console.print(table(rows))
    problems = failures(rows)
    for problem in problems:
        console.print(problem, style="red")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
