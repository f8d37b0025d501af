"""The command `flashstate demo`."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flashstate.bench.cores import available_cores, divide
from flashstate.bench.engine import engines
from flashstate.bench.error import BenchError
from flashstate.bench.machine import check_vllm
from flashstate.bench.server import check_port
from flashstate.console import CTRL_C, interrupts
from flashstate.demo.cache import cache_blocks
from flashstate.demo.comparison import Comparison
from flashstate.demo.options import Options
from flashstate.demo.run import run_all
from flashstate.demo.screen import Screen
from flashstate.models.tiny import write_tiny_model
from flashstate.report.table import comparison as comparison_table


def demo(
    more_traces: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="More traces, after --trace FILE.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Less work: shorter, rougher figures.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Run every stock setting, dense ones too.")] = False,
    model: Annotated[str, typer.Option(help="Family of the tiny model: gdn, mamba2, ...")] = "gdn",
    out: Annotated[Path, typer.Option(help="Folder for results, records, report, logs.")] = Path("demo-out"),
    trace: Annotated[
        list[Path] | None, typer.Option(help="Weka JSON traces to replay (default: synthetic agents).")
    ] = None,
    token_scale: Annotated[
        float | None, typer.Option(help="Divide trace tokens by this (default: 27.2).")
    ] = None,
    time_scale: Annotated[float | None, typer.Option(help="Divide trace gaps by this (default: 8).")] = None,
    sessions: Annotated[int | None, typer.Option(help="Sessions at a time (default: 8; traces: 12).")] = None,
    seed: Annotated[int, typer.Option(help="Decides all the work: the same for every engine.")] = 1,
    cache: Annotated[
        str, typer.Option(help="small (past the cliff), large (all fits), or blocks.")
    ] = "small",
    warmup: Annotated[
        float | None, typer.Option(help="Seconds not measured (default: 0; traces: 20).")
    ] = None,
    window: Annotated[
        float | None, typer.Option(help="Seconds measured (default: all the work; traces: 45).")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port on loopback (default: a free one).")] = None,
) -> None:
    """Compare stock vLLM with FlashState: the same agents, model and cache, side by side."""
    options = Options(
        out, model, quick, full, (*(trace or ()), *(more_traces or ())), token_scale, time_scale, sessions, seed, cache,
        warmup, window, port,
    )  # fmt: skip
    raise typer.Exit(run_demo(options, Console(), Console(stderr=True)))


def run_demo(options: Options, console: Console, errors: Console) -> int:
    """Runs the demo; returns the exit code. Errors that a user can understand are printed, not raised."""
    comparison = None
    try:
        comparison = _prepare(options)
        _introduce(comparison, console)
        with tempfile.TemporaryDirectory(prefix="flashstate-model-") as folder:
            model = write_tiny_model(options.model, Path(folder) / options.model)
            with Screen(console, [engine.name for engine in comparison.engines]) as screen:
                asyncio.run(_interruptible(comparison, model, screen))
    except (KeyboardInterrupt, asyncio.CancelledError):
        _report(comparison, console)
        errors.print(f"interrupted{_kept(comparison)}", style="yellow", highlight=False, soft_wrap=True)
        return CTRL_C
    except (BenchError, OSError) as error:
        _report(comparison, console)
        errors.print("error:", style="bold red", end=" ")
        errors.print(f"{error}{_kept(comparison)}", markup=False, highlight=False, soft_wrap=True)
        return 1
    _report(comparison, console)
    return 0


def _prepare(options: Options) -> Comparison:
    """Checks all that can be checked before a server is started."""
    options.check()
    workload = options.workload()
    family = options.family
    if workload.most_tokens > family.max_model_len:
        raise BenchError(
            f"the longest request has {workload.most_tokens} tokens, the model takes {family.max_model_len}: "
            "give a larger --token-scale"
        )
    blocks = cache_blocks(options.cache, workload, family)
    check_vllm()
    if options.port is not None:
        check_port(options.port)
    options.out.mkdir(parents=True, exist_ok=True)
    return Comparison(
        options,
        command=shlex.join(["flashstate", *sys.argv[1:]]),
        date=datetime.now().astimezone().isoformat("T", "seconds"),
        workload=workload,
        blocks=blocks,
        engines=engines(full=options.full),
    )


async def _interruptible(comparison: Comparison, model: Path, screen: Screen) -> None:
    """Runs the engines; a terminal that closes, or a `kill`, ends them in good order, as Ctrl-C does."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for number in interrupts():
        with contextlib.suppress(ValueError):  # not in the main thread
            loop.add_signal_handler(number, task.cancel)
    await run_all(comparison, model, divide(available_cores()), screen)


def _introduce(comparison: Comparison, console: Console) -> None:
    options, work = comparison.options, comparison.workload
    amount = f"{work.requests} requests of " if work.requests is not None else ""
    what = "recorded traces" if options.traces else "synthetic agents"
    console.print(
        f"{options.family.name} model (random weights), cache of {comparison.blocks} blocks of "
        f"{options.family.block_size} tokens, {amount}{work.sessions} sessions ({what}, seed {options.seed})",
        highlight=False,
    )


def _report(comparison: Comparison | None, console: Console) -> None:
    if comparison is None or not comparison.runs:
        return
    console.print()
    console.print(comparison_table(comparison.results(), comparison.captions))
    console.print()
    console.print(f"report:  {comparison.options.out / 'report.html'}", highlight=False)
    console.print(f"figures: {comparison.options.out / 'results.json'}", highlight=False)


def _kept(comparison: Comparison | None) -> str:
    if comparison is None or not comparison.runs:
        return ""
    path = comparison.options.out / "results.json"
    return f"\n{path} has {', '.join(comparison.runs)}; missing: {', '.join(comparison.missing)}"
