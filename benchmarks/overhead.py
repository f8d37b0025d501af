"""What the plugin costs when nothing is reused: `python -m benchmarks.overhead`.

One engine computes unique prompts, scheduled by stock vLLM and by the plugin in turns (stock, on, on, stock): decode
steps with several requests running, and whole requests from arrival to end, captures and evictions included. Exits 1
if the plugin makes the median step or request more than 2% slower.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from rich.console import Console
from rich.table import Table

from benchmarks.engine import DECODE_BATCH, ON, PROMPT_TOKENS, STOCK, SwappingEngine
from benchmarks.machine import machine
from flashstate.models.tiny import FAMILIES, write_tiny_model

LIMIT = 0.02
ROUNDS = 24
DECODE_STEPS = 100
"""A turn."""
PREFILLS = 4
"""A turn."""
TURNS = (STOCK, ON, ON, STOCK)
TITLES = {
    "decode": f"decode step, {DECODE_BATCH} running",
    "prefill": f"request, {PROMPT_TOKENS:,} new tokens",
}


@dataclass(frozen=True)
class Result:
    """Of one workload: the median of every round in seconds, by mode."""

    workload: str
    rounds: dict[str, list[float]]

    @property
    def ratios(self) -> list[float]:
        """Plugin over stock, a round each."""
        return [on / stock for on, stock in zip(self.rounds[ON], self.rounds[STOCK], strict=True)]

    @property
    def overhead(self) -> float:
        """Median over the rounds; 0.01 is one per cent slower."""
        return median(self.ratios) - 1


def take_turns(engine: SwappingEngine, workload: str) -> dict[str, float]:
    """Median seconds by mode over one round."""
    times: dict[str, list[float]] = {STOCK: [], ON: []}
    for mode in TURNS:
        engine.use(mode)
        times[mode] += engine.decode(DECODE_STEPS) if workload == "decode" else engine.prefill(PREFILLS)
    return {mode: median(values) for mode, values in times.items()}


def measure(engine: SwappingEngine) -> list[Result]:
    """Time both workloads."""
    results = [Result(workload, {STOCK: [], ON: []}) for workload in TITLES]
    for round_ in range(ROUNDS + 1):
        for result in results:
            medians = take_turns(engine, result.workload)
            if round_ > 0:  # the first warms up
                for mode, seconds in medians.items():
                    result.rounds[mode].append(seconds)
    return results


def table(results: list[Result]) -> Table:
    """What was measured."""
    out = Table(title=f"plugin on, nothing reused, against stock vLLM (tiny gdn)\n{machine()}")
    out.add_column("")
    for column in ("stock ms", "plugin ms", "stock a second", "overhead", "quartiles"):
        out.add_column(column, justify="right")
    for result in results:
        stock, on = (median(result.rounds[mode]) for mode in (STOCK, ON))
        low, _, high = quantiles(result.ratios, n=4)
        out.add_row(
            TITLES[result.workload],
            f"{stock * 1e3:.3f}",
            f"{on * 1e3:.3f}",
            f"{1 / stock:.1f}",
            f"{result.overhead:+.2%}",
            f"{low - 1:+.2%} to {high - 1:+.2%}",
        )
    return out


def main() -> int:
    """Measure, print, judge."""
    family = FAMILIES["gdn"]
    with tempfile.TemporaryDirectory() as folder:
        model = write_tiny_model(family.name, Path(folder))
        engine = SwappingEngine(model, family.block_size, family.vocab_size, max(os.sched_getaffinity(0)))
        results = measure(engine)
    console = Console(width=120)
    console.print(table(results))
    counted = engine.counters
    console.print(
        f"plugin: {sum(counted['captures'].values())} captures, {sum(counted['evictions'].values())} evictions, "
        f"{counted['resumed_tokens']} tokens resumed"
    )
    late = [result for result in results if result.overhead > LIMIT]
    for result in late:
        console.print(
            f"{result.workload}: {result.overhead:+.2%} with the plugin: limit {LIMIT:.0%}", style="red"
        )
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
