"""The command `flashstate demo`."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from flashstate.bench.error import BenchError
from flashstate.bench.folder import alone
from flashstate.bench.head import BENCH_FILE, head
from flashstate.bench.machine import check_vllm
from flashstate.bench.result import Results
from flashstate.bench.run import Interrupted, make_runs
from flashstate.bench.server import check_port
from flashstate.console import CTRL_C, fail, reason
from flashstate.demo.cache import cache_blocks
from flashstate.demo.comparison import Comparison
from flashstate.demo.options import Options
from flashstate.demo.screen import EnginesScreen
from flashstate.replay.open_files import allow_connections
from flashstate.replay.options import OptionError
from flashstate.replay.run_log import LogError
from flashstate.report.table import comparison as comparison_table
from flashstate.traces.session import Session, TraceError

_SHOWN: Final = ("results.json", "report.html")
_PRESET, _DEMO = "preset", "demo"
"""In bench.json: it may be begun anew."""


def demo(
    more_traces: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="More traces, after --trace FILE.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Less work: shorter, rougher figures.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Run every stock setting, dense ones too.")] = False,
    model: Annotated[str, typer.Option(help="Family of the tiny model: gdn, mamba2, ...")] = "gdn",
    out: Annotated[Path, typer.Option(help="Folder for results, records, report, logs.")] = Path("demo-out"),
    trace: Annotated[
        list[Path] | None, typer.Option(help="Traces to replay, in any format (default: synthetic agents).")
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
    measure: Annotated[
        float | None, typer.Option(help="Seconds measured (default: all the work; traces: 45).")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port on loopback (default: a free one).")] = None,
) -> None:
    """Compare stock vLLM with FlashState: the same agents, model and cache, side by side."""
    options = Options(
        out, model, quick, full, (*(trace or ()), *(more_traces or ())), token_scale, time_scale, sessions, seed, cache,
        warmup, measure, port,
    )  # fmt: skip
    try:
        raise typer.Exit(_demo(options, Console()))
    except (BenchError, OptionError, LogError, OSError) as error:
        fail(reason(error, out))
    except TraceError as error:
        fail(f"--trace {error}")


def _demo(options: Options, console: Console) -> int:
    """Checks all that can be checked before a server is started, and runs. Returns the exit code."""
    options.check()
    traces = options.replay.read()
    workload = options.replay.make_workload(traces)
    blocks = cache_blocks(options.cache, workload, options.family)
    bench = options.bench(blocks)
    bench.check_length(workload.most_tokens)
    check_vllm()
    if options.port is not None:
        check_port(options.port)
    with alone(options.out):
        allow_connections(2 * workload.sessions)
        command = shlex.join(["flashstate", *sys.argv[1:]])
        results = _begin(options.out, head(bench, traces, command))
        comparison = Comparison(bench, workload, results, options.cache)
        _introduce(comparison, console)
        return _run(comparison, traces, console)


def _begin(out: Path, head: dict[str, Any]) -> Results:
    """A file without runs; what an earlier demo left makes room. Raises BenchError if somebody else's is there."""
    path = out / BENCH_FILE
    try:
        is_ours = not path.exists() or json.loads(path.read_text(encoding="utf-8")).get(_PRESET) == _DEMO
    except (ValueError, AttributeError):
        is_ours = False
    if not is_ours:
        raise BenchError(f"{path}: is not a demo's; name another folder with --out")
    for name in (BENCH_FILE, *_SHOWN):
        (out / name).unlink(missing_ok=True)
    return Results(path, head | {_PRESET: _DEMO})


def _run(comparison: Comparison, traces: tuple[Session, ...], console: Console) -> int:
    options, work = comparison.options, comparison.workload
    seconds = options.seconds
    total = float(work.requests or 0) if seconds is None else seconds
    names = [engine.name for engine in options.engines]
    invalid: list[str] = []
    try:
        with EnginesScreen(console, names, total, by_time=seconds is not None) as screen:
            invalid = make_runs(options, traces, work.most_tokens, comparison.made, screen)
    except Interrupted:
        with contextlib.suppress(OSError):
            _report(comparison, console)
        fail(f"interrupted{_kept(comparison)}", CTRL_C)
    except (BenchError, OSError) as error:
        with contextlib.suppress(OSError):
            _report(comparison, console)
        fail(reason(error, options.out) + _kept(comparison))
    _report(comparison, console)
    if invalid:
        fail("\n".join(f"not valid, and in no figure: {run}" for run in invalid) + _kept(comparison))
    return 0


def _introduce(comparison: Comparison, console: Console) -> None:
    options, work = comparison.options, comparison.workload
    amount = f"{work.requests} requests of " if work.requests is not None else ""
    what = "recorded traces" if options.replay.traces else "synthetic agents"
    console.print(
        f"{options.family.name} model (random weights), cache of {options.blocks} blocks of "
        f"{options.family.block_size} tokens, {amount}{work.sessions} sessions ({what}, seed {options.replay.seed})",
        highlight=False,
    )


def _report(comparison: Comparison, console: Console) -> None:
    if not comparison.made.runs:
        return
    console.print()
    console.print(comparison_table(comparison.results, comparison.captions))
    console.print()
    comparison.write()
    for what, name in zip(("figures:", "report: "), _SHOWN, strict=True):
        console.print(f"{what} {comparison.options.out / name}", highlight=False, soft_wrap=True)


def _kept(comparison: Comparison) -> str:
    if not comparison.made.runs:
        return ""
    return (
        f"\n{comparison.made.path} has {', '.join(comparison.runs)}; missing: {', '.join(comparison.missing)}"
    )
