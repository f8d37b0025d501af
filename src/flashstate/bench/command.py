"""The command `flashstate bench`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from flashstate.bench.compare import Comparison
from flashstate.bench.engine import started
from flashstate.bench.error import BenchError
from flashstate.bench.findings import findings
from flashstate.bench.folder import alone
from flashstate.bench.head import BENCH_FILE, head
from flashstate.bench.launch import CHUNK_TOKENS
from flashstate.bench.machine import check_vllm
from flashstate.bench.options import TOKEN_SCALE, Options
from flashstate.bench.page import write_report
from flashstate.bench.result import Results, RunKey
from flashstate.bench.run import Interrupted, make_runs
from flashstate.bench.screen import RunsScreen
from flashstate.bench.table import tables
from flashstate.bench.turns import turns
from flashstate.console import CTRL_C, fail, reason
from flashstate.replay.command import WORKLOAD_HELP, GapsName, WorkloadName, window
from flashstate.replay.open_files import allow_connections
from flashstate.replay.options import OptionError
from flashstate.replay.options import Options as ReplayOptions
from flashstate.replay.run_log import LogError
from flashstate.report.simulation import ReportError
from flashstate.traces.session import Session, TraceError
from flashstate.urls import without_passwords

_PIPE_COLUMNS: Final = 160
"""Nobody's window: no line has to wrap."""


def bench(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRACE...",
            help="Traces in any format (`flashstate trace synth` makes some).",
            show_default=False,
        ),
    ] = None,
    engines: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="stock, stock-match-unit-16, stock-dense, stock-match-unit-16-dense, stock-best (all four of them), "
            "flashstate, flashstate:POLICY, URL or NAME=URL of a running server.",
        ),
    ] = "stock,stock-match-unit-16,stock-dense,flashstate",
    sessions: Annotated[
        str, typer.Option(metavar="N,N,...", help="Loads: sessions at a time, with their sub-agents.")
    ] = "14,21,28",
    repeat: Annotated[
        int, typer.Option(metavar="K", help="Times, each with a seed of its own; engines in turn: A B, B A.")
    ] = 2,
    model: Annotated[str, typer.Option(help="Family of the tiny model that is served.")] = "gdn",
    cache: Annotated[
        int, typer.Option(metavar="BLOCKS", help="Size of the cache; a block is 160 tokens.")
    ] = 844,
    chunk: Annotated[
        int, typer.Option(metavar="TOKENS", help="Of one prompt in a step; a step takes two.")
    ] = CHUNK_TOKENS,
    workload: Annotated[WorkloadName, typer.Option(help=WORKLOAD_HELP)] = WorkloadName.TRACES,
    turns: Annotated[int, typer.Option(metavar="N", help="Of each of `agents`.")] = ReplayOptions.turns,
    warmup: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds before what is measured (30; agents: 0).")
    ] = None,
    measure: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds to measure (50; agents: all the work).")
    ] = None,
    gaps: Annotated[
        GapsName, typer.Option(help="How recorded gaps are read, as by `replay`.")
    ] = GapsName.THINK_ONLY,
    token_scale: Annotated[
        float, typer.Option(metavar="X", help="Divides prompts and outputs.")
    ] = TOKEN_SCALE,
    time_scale: Annotated[float, typer.Option(metavar="X", help="Divides gaps.")] = 12.0,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the first repeat.")] = 1,
    token_ids: Annotated[
        str, typer.Option(metavar="FIRST:END", help="Ids that prompts are made of.")
    ] = "16:2048",
    prefill_cost: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Of `flashstate fit` here: for flashstate, and to say what prefill took."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for figures, records, report, logs.")
    ] = Path("bench-out"),
) -> None:
    """Compare engines at several loads: the same agents, model and cache, in turns. The same command goes on."""
    warmup_s, measure_s = window(workload, warmup, measure, (30.0, 50.0))
    replay = ReplayOptions(
        ("http://localhost",), 1, tuple(traces or ()), workload.value, warmup_s=warmup_s, measure_s=measure_s,
        gaps=gaps.value, token_scale=token_scale, time_scale=time_scale, seed=seed, token_ids=token_ids, turns=turns,
    )  # fmt: skip
    try:
        options = Options.read(out, engines, sessions, repeat, model, cache, chunk, replay, prefill_cost)
        raise typer.Exit(_bench(options))
    except (BenchError, OptionError, TraceError, LogError, ReportError, OSError) as error:
        fail(reason(error, out))


def _bench(options: Options) -> int:
    """Returns the exit code: 0 if every run is there and valid."""
    console = Console()
    if not console.is_terminal:
        console.width = _PIPE_COLUMNS
    if started(options.engines):
        check_vllm()
    traces = options.replay.read()
    most_tokens = options.most_tokens(traces)
    options.check_length(most_tokens)
    with alone(options.out):
        return _compare(options, traces, most_tokens, console)


def _compare(options: Options, traces: tuple[Session, ...], most_tokens: int, console: Console) -> int:
    """In a folder of our own. Returns the exit code."""
    allow_connections(2 * max(options.loads))
    command = without_passwords(shlex.join(["flashstate", *sys.argv[1:]]))
    results = Results.open(options.out / BENCH_FILE, head(options, traces, command))
    missing = [
        key
        for turn in turns(options)
        for load in turn.loads
        if (key := RunKey(turn.engine.name, load, turn.repeat)) not in results.runs
    ]
    if missing:
        _introduce(options, len(missing), console)
    code, invalid = 0, []
    try:
        with RunsScreen(console, len(missing), options.seconds) as screen:
            invalid = make_runs(options, traces, most_tokens, results, screen)
    except Interrupted:
        code = CTRL_C
    except (BenchError, OSError) as error:
        _tell(options, results, console)
        fail(
            reason(error, options.out)
            + "\nthe same command goes on with what is missing" * bool(results.runs)
        )
    _tell(options, results, console)
    if code:
        fail("interrupted: the same command goes on with what is missing", code)
    if invalid:
        fail(f"{len(invalid)} runs are not valid and in no figure: the same command makes them again")
    return 0


def _introduce(options: Options, missing: int, console: Console) -> None:
    lasting = "all the work" if options.seconds is None else f"{options.seconds:g} s"
    counts = (len(options.engines), "engine"), (len(options.loads), "load"), (options.repeat, "time")
    console.print(
        f"{_some(missing, 'run')} of {lasting}: {', '.join(_some(*count) for count in counts)}; "
        f"{options.model} model (random weights), {options.blocks} blocks",
        highlight=False,
    )


def _some(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _tell(options: Options, results: Results, console: Console) -> None:
    """Prints the tables, writes the figures and the page, of all in the folder; nothing if there are no runs."""
    if not results.runs:
        return
    every = results.head["options"]
    options = options.with_all(every["engines"], every["sessions"])
    found = Comparison(results.runs)
    console.print()
    for table in tables(found, options, console.width):
        console.print(table)
    results.write({"findings": findings(found, options)})
    page = write_report(options, results)
    console.print()
    console.print(f"figures: {results.path}", highlight=False, soft_wrap=True)
    console.print(f"report:  {page}", highlight=False, soft_wrap=True)
