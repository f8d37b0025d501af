"""The command `flashstate simulate`."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, Self

import typer
from rich.console import Console

from flashstate.console import CTRL_C, interrupts, reason
from flashstate.simulate.options import OptionError, Options
from flashstate.simulate.presets import DEFAULT_GEOMETRY, GeometryError, preset_names
from flashstate.simulate.progress import RunProgress
from flashstate.simulate.result import RunKey
from flashstate.simulate.results_file import Results, ResultsFile, ResultsFileError
from flashstate.simulate.setup import RECORDED, Setup, machine
from flashstate.simulate.show import introduce, list_systems, say, show_results
from flashstate.simulate.sweep import Failure, sweep
from flashstate.simulate.systems import DEFAULT_SYSTEMS, systems
from flashstate.simulate.waiting import order_names
from flashstate.simulate.workload import Agents, Workload, read_workload
from flashstate.traces.session import TraceError

_LOADS: Final = "16,24,32,40,48,56,64,80,96"
_SHOWN_BAD: Final = 10


def simulate(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(metavar="TRACE", help="Traces, in any format of `flashstate trace`."),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="Systems to compare, with commas, or all (default: see --list).", show_default=False
        ),
    ] = ",".join(DEFAULT_SYSTEMS),
    sessions: Annotated[str, typer.Option(help="Concurrent sessions, with commas.")] = _LOADS,
    seeds: Annotated[int, typer.Option(help="How many schedules to average over.")] = 2,
    geometry: Annotated[
        str, typer.Option(metavar="NAME|CONFIG", help=f"{', '.join(preset_names())}, or a config.json.")
    ] = DEFAULT_GEOMETRY,
    clock: Annotated[
        str, typer.Option(help="recorded: requests last as recorded. engine: a model of the engine's time.")
    ] = "recorded",
    gaps: Annotated[
        str, typer.Option(help="recorded, or corrected: less the request's own server time.")
    ] = "recorded",
    agents: Annotated[str, typer.Option(help="main, or all: sub-agents too.")] = "main",
    out: Annotated[
        Path | None,
        typer.Option("--json", metavar="OUT", help="Keep results here, run by run; go on from them."),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time (default: a core each).")] = None,
    minutes: Annotated[float, typer.Option(help="Length of a run.")] = 45.0,
    warmup: Annotated[float, typer.Option(help="Minutes of it that are not measured.")] = 15.0,
    gap_cap: Annotated[float, typer.Option(help="Longest gap between turns, seconds.")] = 300.0,
    memory: Annotated[
        float | None, typer.Option(metavar="GIB", help="Cache on each GPU, with a config.json.")
    ] = None,
    tp: Annotated[
        int | None, typer.Option(help="Tensor parallel GPUs, with a config.json (default: 1).")
    ] = None,
    blocks: Annotated[int | None, typer.Option(help="Cache blocks, instead of the geometry's.")] = None,
    cost: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="D E", help="Prefill cost: s/token and s/(1,000 tokens)^2."),
    ] = None,
    prefill_cost: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The same, as `flashstate fit` wrote it.")
    ] = None,
    all_sessions: Annotated[
        bool, typer.Option("--all-sessions", help="Linked recordings and single requests too.")
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out broken records, and count them.")
    ] = False,
    order: Annotated[
        str | None, typer.Option(help=f"Who is served next, engine clock: {', '.join(order_names())}.")
    ] = None,
    guard: Annotated[
        float | None,
        typer.Option(
            metavar="THETA", help="Hold turns back while the working set is above THETA caches, engine clock."
        ),
    ] = None,
    timing: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The engine's times as JSON, engine clock.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Name the policies and geometries.")] = False,
) -> None:
    """Replay recorded sessions against every cache policy of the field: hit rates by load, in seconds a run."""
    if list_all:
        list_systems(Console())
        raise typer.Exit
    options = Options(
        tuple(traces or ()), policy, sessions, seeds, geometry, clock, gaps, agents, out, jobs, minutes, warmup,
        gap_cap, memory, tp, blocks, cost, prefill_cost, all_sessions, skip_bad,
        order, guard, timing,
    )  # fmt: skip
    raise typer.Exit(run_simulate(options, Console(), Console(stderr=True)))


def run_simulate(options: Options, console: Console, errors: Console) -> int:
    """Does the runs and shows them; returns the exit code. Errors of the user's are printed, not raised."""
    try:
        setup = _setup(options, errors)
        with _results(options.out, setup) as results:
            return _run_all(options, setup, results, console, errors)
    except (OptionError, GeometryError, TraceError, ResultsFileError, OSError) as error:
        say(errors, f"flashstate: {reason(error, options.out)}", "red")
    except KeyboardInterrupt:
        say(errors, "interrupted", "yellow")
        return CTRL_C
    return 1


def _setup(options: Options, errors: Console) -> Setup:
    """Checks all that can be checked before traces are read, then reads them."""
    geometry, rules, agents = options.cache_geometry(), options.rules(), options.which_agents()
    options.keys(geometry)
    options.processes()
    serving = options.serving()
    if not options.traces:
        raise OptionError("name traces to replay: files or folders (see `flashstate simulate --help`)")
    workload = _read(options, agents, errors)
    if options.clock == RECORDED:
        workload = workload.lasting(rules)
    return Setup(workload, geometry, options.clock, rules, serving)


def _read(options: Options, agents: Agents, errors: Console) -> Workload:
    bad = 0

    def count(error: TraceError) -> None:
        nonlocal bad
        bad += 1
        if bad <= _SHOWN_BAD:
            say(errors, f"skipped: {error}", "yellow")

    on_bad = count if options.skip_bad else None
    workload = read_workload(options.traces, agents, all_sessions=options.all_sessions, on_bad=on_bad)
    return replace(workload, left_out=workload.left_out | ({"broken": bad} if bad else {}))


def _results(out: Path | None, setup: Setup) -> Results:
    about = {
        "date": datetime.now().astimezone().isoformat("T", "seconds"),
        "machine": machine(),
        "command": shlex.join(["flashstate", *sys.argv[1:]]),
        "policies": {name: system.title for name, system in systems().items()},
    }
    return Results(setup.as_json(), about) if out is None else ResultsFile(out, setup.as_json(), about)


def _run_all(options: Options, setup: Setup, results: Results, console: Console, errors: Console) -> int:
    keys = options.keys(setup.geometry)
    missing = [key for key in keys if key not in results.done]
    introduce(setup, keys, missing, console)
    failed = 0
    interrupted = False
    try:
        with RunProgress(errors, keys, missing) as progress, _Interrupts() as interrupts:

            def tick(running: Sequence[RunKey]) -> None:
                interrupts.check()
                progress.running(running)

            runs = sweep(setup, options.systems(), missing, options.processes(), tick)
            with closing(runs):
                for outcome in runs:
                    if isinstance(outcome, Failure):
                        failed += 1
                        say(errors, _failure(outcome), "red")
                    else:
                        results.add(outcome)
                    progress.ended(outcome.key)
    except KeyboardInterrupt:
        interrupted = True
    else:
        results.finish()
    show_results(results, set(keys), console)
    if interrupted:
        say(errors, f"interrupted{_kept(results, keys)}", "yellow")
        return CTRL_C
    if failed:
        say(errors, f"flashstate: {failed} of {len(keys)} runs failed{_again(results)}", "red")
    return 1 if failed else 0


class _Interrupts:
    """Ctrl-C, a terminal that closes or a `kill` end the runs in good order, while used as a context.

    `check` raises KeyboardInterrupt again if one came: where the signal strikes inside a hook of a fork, or something
    being destroyed, Python prints the exception and goes on.
    """

    def __init__(self) -> None:
        self._came = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in interrupts():
            self._before[number] = signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raises KeyboardInterrupt if a signal came."""
        if self._came:
            raise KeyboardInterrupt

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._came = True
        raise KeyboardInterrupt


def _failure(failure: Failure) -> str:
    key = failure.key
    return f"failed: {key.policy} at {key.sessions} sessions, seed {key.seed}: {failure.reason}"


def _kept(results: Results, keys: Sequence[RunKey]) -> str:
    done = sum(key in results.done for key in keys)
    if isinstance(results, ResultsFile):
        return f" after {done} of {len(keys)} runs, kept in {results.partial}: the same command goes on from there"
    return f" after {done} of {len(keys)} runs; with --json OUT they would have been kept"


def _again(results: Results) -> str:
    return ": the same command runs them again" if isinstance(results, ResultsFile) else ""
