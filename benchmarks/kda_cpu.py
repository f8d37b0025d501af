"""Speed of the C++ KDA recurrence: `python -m benchmarks.kda_cpu`.

Prefill of 128 tokens, 8 heads, bfloat16, in place in a pool, on one thread; with an export halfway; on two threads;
and decode steps of 32 sequences. The workloads take turns. One thread is timed by its own processor time, so that what
a neighbour runs in between does not count; two by the clock. Shown are the best call and the median one. The best is
judged, since a busy machine only adds. Then the same tokens are run on one and two threads, and in two calls split at
every offset. Exits 1 if the best prefill on one thread is under its limit, or if any bit differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter, thread_time

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from flashstate.kernels.base import ChunkInputs, Recurrence
from flashstate.kernels.cpu import chunk_forward, chunk_forward_in_pool

HEADS = 8
TOKENS = 128
LIMITS = {64: 300_000.0, 128: 70_000.0}
"""Tokens a second of prefill on one thread, by head dimension."""
DECODES = 32
ROUNDS = 60
CALLS = 5
"""A round."""
SPLIT_TOKENS = 48


@dataclass
class Workload:
    """One line of the table. `times`: seconds, one a call."""

    name: str
    tokens: int
    threads: int
    call: Callable[[], object]
    limit: float | None = None
    times: list[float] = field(default_factory=list)

    def run(self) -> None:
        torch.set_num_threads(self.threads)
        clock = thread_time if self.threads == 1 else perf_counter
        for _ in range(CALLS):
            began = clock()
            self.call()
            self.times.append(clock() - began)

    @property
    def best(self) -> float:
        """Tokens a second."""
        return self.tokens / min(self.times)

    @property
    def typical(self) -> float:
        """Tokens a second."""
        return self.tokens / median(self.times)


def make_inputs(lengths: list[int], dim: int) -> ChunkInputs:
    """Unit keys and queries, gates of -0.7 on average, as an untrained layer's; starts from zeros."""
    draw = torch.Generator().manual_seed(0)
    tokens = sum(lengths)
    q, k, v = (torch.randn(tokens, HEADS, dim, generator=draw) for _ in range(3))
    q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    return ChunkInputs(
        recurrence=Recurrence.KDA,
        q=q.bfloat16(),
        k=k.bfloat16(),
        v=v.bfloat16(),
        log_decay=-torch.nn.functional.softplus(torch.randn(tokens, HEADS, dim, generator=draw)),
        beta=torch.rand(tokens, HEADS, generator=draw),
        scale=dim**-0.5,
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
    )


def workloads(dim: int) -> list[Workload]:
    """All of one head dimension."""
    prefill, decode = make_inputs([TOKENS], dim), make_inputs([1] * DECODES, dim)
    exporting = replace(prefill, export_offsets=ints(TOKENS // 2))
    pool = torch.zeros(DECODES, HEADS, dim, dim)
    fresh, slot, slots = torch.tensor([False]), ints(0), ints(*range(DECODES))

    def run() -> None:
        chunk_forward_in_pool(prefill, pool, slot, fresh)

    return [
        Workload(f"prefill, D{dim}", TOKENS, 1, run, LIMITS[dim]),
        Workload(
            f"prefill with export, D{dim}",
            TOKENS,
            1,
            lambda: chunk_forward_in_pool(exporting, pool, slot, fresh, ints(1)),
        ),
        Workload(f"prefill, D{dim}", TOKENS, 2, run),
        Workload(f"decode, D{dim}", DECODES, 1, lambda: chunk_forward_in_pool(decode, pool, slots)),
    ]


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def differences(dim: int) -> list[str]:
    """Where two threads or a split change a bit of the output or the final state."""
    inputs = make_inputs([SPLIT_TOKENS], dim)
    torch.set_num_threads(1)
    whole = chunk_forward(inputs)
    torch.set_num_threads(2)
    twice = chunk_forward(inputs)
    found = []
    if not (torch.equal(whole.output, twice.output) and torch.equal(whole.final_state, twice.final_state)):
        found.append(f"D{dim}: bits on two threads differ from those on one")
    slot = ints(0)
    for cut in range(1, SPLIT_TOKENS):
        pool = torch.zeros(1, HEADS, dim, dim)
        parts = [
            chunk_forward_in_pool(tokens_of(inputs, begin, end), pool, slot)
            for begin, end in ((0, cut), (cut, SPLIT_TOKENS))
        ]
        if not (torch.equal(torch.cat(parts), whole.output) and torch.equal(pool, whole.final_state)):
            found.append(f"D{dim}: bits of a run split at {cut} differ")
    return found


def tokens_of(inputs: ChunkInputs, begin: int, end: int) -> ChunkInputs:
    """A call with some of the tokens of the only sequence."""
    parts = {name: getattr(inputs, name)[begin:end] for name in ("q", "k", "v", "log_decay", "beta")}
    return replace(inputs, **parts, cu_seqlens=ints(0, end - begin))


def table(rows: list[Workload]) -> Table:
    """What was measured."""
    out = Table("workload", "threads", title=f"KDA in C++, {HEADS} heads, bfloat16: tokens/s\n{machine()}")
    for column in ("best call", "median call", "limit"):
        out.add_column(column, justify="right")
    for row in rows:
        limit = "" if row.limit is None else f"{row.limit:,.0f}"
        out.add_row(row.name, str(row.threads), f"{row.best:,.0f}", f"{row.typical:,.0f}", limit)
    return out


def main() -> int:
    """Measure, print, judge."""
    console = Console(width=120)
    rows = [workload for dim in LIMITS for workload in workloads(dim)]
    for row in rows:
        row.call()  # compiles, and touches the memory
    for _ in range(ROUNDS):
        for row in rows:
            row.run()
    console.print(table(rows))
    problems = [problem for dim in LIMITS for problem in differences(dim)]
    problems += [
        f"{row.name}: {row.best:,.0f} tokens/s in the best call: limit {row.limit:,.0f}"
        for row in rows
        if row.limit is not None and row.best < row.limit
    ]
    for problem in problems:
        console.print(problem, style="red")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
