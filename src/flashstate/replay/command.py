"""The command `flashstate replay`."""

from __future__ import annotations

import asyncio
import json
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from flashstate import __version__
from flashstate.console import CTRL_C, fail, reason
from flashstate.replay.conduct import INTERRUPTED, Load, conduct
from flashstate.replay.open_files import allow_connections
from flashstate.replay.options import AGENTS, OptionError, Options
from flashstate.replay.plan import Workload
from flashstate.replay.preflight import Target, TargetError, check_length, find_model, probe
from flashstate.replay.run_log import LogError, RunLog, read_events
from flashstate.replay.table import show
from flashstate.replay.totals import Totals, summary
from flashstate.replay.verdict import reasons
from flashstate.traces.session import TraceError
from flashstate.urls import without_passwords


class WorkloadName(StrEnum):
    """What to replay."""

    TRACES = "traces"
    MATH = "math"
    EDITS = "edits"
    AGENTS = "agents"


WORKLOAD_HELP: Final = (
    "math: long answers. edits: conversations that are edited. agents: a fixed piece of work, not scaled."
)


def window(
    workload: WorkloadName, warmup: float | None, measure: float | None, default: tuple[float, float]
) -> tuple[float, float | None]:
    """Seconds of warm-up and of measured time (None: to the end of the work), with what was not said filled in."""
    warmup_s, measure_s = (0.0, None) if workload is WorkloadName.AGENTS else default
    return warmup_s if warmup is None else warmup, measure_s if measure is None else measure


class GapsName(StrEnum):
    """How long agents wait."""

    THINK_ONLY = "think-only"
    ORIGINAL = "original"
    API_SCALED = "api-scaled"
    CORRECTED = "corrected"


def replay(
    url: Annotated[str, typer.Option(metavar="URL[,URL...]", help="Servers; sessions take turns and stay.")],
    sessions: Annotated[int, typer.Option(metavar="N", help="Sessions at a time, each with its sub-agents.")],
    traces: Annotated[
        list[Path] | None,
        typer.Argument(metavar="TRACE...", help="Traces in any format.", show_default=False),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Its name (default: the only one served).")] = None,
    workload: Annotated[WorkloadName, typer.Option(help=WORKLOAD_HELP)] = WorkloadName.TRACES,
    turns: Annotated[int, typer.Option(metavar="N", help="Of each of `agents`.")] = Options.turns,
    warmup: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds before what is measured (900; agents: 0).")
    ] = None,
    measure: Annotated[
        float | None, typer.Option(metavar="S", help="Seconds to measure (1800; agents: all the work).")
    ] = None,
    gaps: Annotated[
        GapsName, typer.Option(help="From the end of an answer to the next request; 300 s at most.")
    ] = GapsName.THINK_ONLY,
    api_time_scale: Annotated[
        float, typer.Option(metavar="X", help="--gaps api-scaled: times the recorded server's time.")
    ] = 1.0,
    token_scale: Annotated[float, typer.Option(metavar="X", help="Divides prompts and outputs.")] = 1.0,
    time_scale: Annotated[float, typer.Option(metavar="X", help="Divides gaps.")] = 1.0,
    seed: Annotated[int, typer.Option(metavar="S", help="The same seed makes the same plan.")] = 0,
    chat: Annotated[
        bool, typer.Option("--chat", help="Messages to /v1/chat/completions, not token ids.")
    ] = False,
    token_ids: Annotated[
        str, typer.Option(metavar="FIRST:END", help="Ids that prompts are made of.")
    ] = Options.token_ids,
    stall_timeout: Annotated[
        float, typer.Option(metavar="S", help="A stream, or a server, silent for so long has failed.")
    ] = 120.0,
    max_failed: Annotated[
        float, typer.Option(metavar="PERCENT", help="With more failed requests a run is not valid.")
    ] = 5.0,
    records: Annotated[Path, typer.Option(metavar="FILE", help="A new file: one request a line.")] = Path(
        "replay.jsonl"
    ),
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on with the run of this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Replay agent sessions against any OpenAI-compatible server, and say what they got and if it counts."""
    warmup_s, measure_s = window(workload, warmup, measure, (900.0, 1800.0))
    options = Options(
        tuple(part.strip() for part in url.split(",") if part.strip()), sessions, tuple(traces or ()), workload.value,
        model, warmup_s, measure_s, gaps.value, api_time_scale, token_scale, time_scale, seed, chat, token_ids,
        stall_timeout, max_failed, turns,
    )  # fmt: skip
    try:
        raise typer.Exit(_run(options, records, resume, as_json=as_json))
    except (OptionError, TraceError, TargetError, LogError, OSError) as error:
        fail(reason(error, resume or records))
    except KeyboardInterrupt:
        fail("interrupted", CTRL_C)


def _run(options: Options, records: Path, resume: Path | None, *, as_json: bool) -> int:
    """Returns the exit code: 0 for a valid run."""
    options.check()
    if resume is not None and options.workload == AGENTS:
        raise OptionError(f"--resume: --workload {AGENTS} is measured in one go; run it anew, with --records")
    allow_connections(2 * options.sessions)
    traces = options.read()
    work = options.make_workload(traces)
    targets = asyncio.run(_targets(options, work))
    errors = Console(stderr=True)
    for target in targets:
        if not target.says_cached:
            errors.print(f"[yellow]{without_passwords(target.url)} does not report cached tokens: no hit rate without "
                         "--enable-prompt-tokens-details (vLLM) or --enable-cache-report (SGLang)[/]")  # fmt: skip
    parameters = options.parameters(traces, targets[0].model.name)
    totals = Totals()
    if resume is not None:
        log = RunLog.resume(resume, parameters)
        _take_all(resume, totals)
    else:
        log = RunLog.create(records, _head(parameters))
    with log:
        if options.measure_s is None or totals.measured_s < options.measure_s:
            load = Load(
                work, targets, options.ids, options.chat, options.warmup_s, options.measure_s, options.stall_s,
                log.head["run"],
            )  # fmt: skip
            with _progress(load, totals, errors) as on_tick:
                asyncio.run(conduct(load, log, totals, on_tick))
    return _tell(totals, parameters, log.path, as_json=as_json)


def _tell(totals: Totals, parameters: dict[str, Any], path: Path, *, as_json: bool) -> int:
    found = summary(totals, parameters, reasons(totals, parameters))
    if as_json:
        typer.echo(json.dumps(found | {"records": str(path)}, indent=2))
    else:
        show(found, Console())
        typer.echo(f"records: {path}")
    if totals.parts and totals.parts[-1].stopped == INTERRUPTED:
        return CTRL_C
    return 0 if found["verdict"] == "valid" else 1


async def _targets(options: Options, work: Workload) -> tuple[Target, ...]:
    """Looks at every server. Raises TargetError."""
    model = await find_model(options.urls[0], options.model)
    for url in options.urls[1:]:
        await find_model(url, model.name)
    check_length(options.urls[0], model, work.most_tokens, options.scale)
    return tuple(
        [await probe(url, model, options.ids, options.stall_s, chat=options.chat) for url in options.urls]
    )


def _take_all(path: Path, totals: Totals) -> None:
    for number, event in enumerate(read_events(path), start=2):
        try:
            totals.take(event)
        except (ArithmeticError, AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise LogError(f"{path}: line {number}: is not ours: {error!r}") from None


def _head(parameters: dict[str, Any]) -> dict[str, Any]:
    # Names the run's prefixes on the server: the same seed on the same server must not hit what it left there.
    return {
        "run": secrets.token_hex(6),
        "version": __version__,
        "command": without_passwords(shlex.join(["flashstate", *sys.argv[1:]])),
        "parameters": parameters,
    }


@contextmanager
def _progress(load: Load, totals: Totals, console: Console) -> Iterator[Callable[[float], None]]:
    """A line that moves, where somebody may watch."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}")
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        total = None if load.measure_s is None else load.warmup_s + load.measure_s - totals.measured_s
        of = "" if total is None else f" of {total:,.0f}"
        task = progress.add_task("warm-up", total=total, said="")

        def on_tick(now_s: float) -> None:
            phase = "measuring" if totals.parts and totals.parts[-1].opened_s is not None else "warm-up"
            failed = totals.failed + totals.failed_outside
            said = f"{now_s:,.0f}{of} s, {totals.requests:,} requests, {failed:,} failed"
            progress.update(task, completed=now_s, description=phase, said=said)

        yield on_tick
