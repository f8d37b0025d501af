"""Starts each engine in its turn and puts the loads on it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from flashstate import __version__
from flashstate.bench.busy import Busy
from flashstate.bench.cores import Cores, pinned
from flashstate.bench.engine import Engine
from flashstate.bench.error import BenchError
from flashstate.bench.launch import serve_command, serve_environment
from flashstate.bench.options import Options
from flashstate.bench.result import Result, Results, RunKey, prefill_share
from flashstate.bench.screen import Screen
from flashstate.bench.server import Server, free_port, running, while_alive
from flashstate.bench.turns import Turn, turns
from flashstate.replay.conduct import INTERRUPTED, Load, conduct
from flashstate.replay.options import Options as ReplayOptions
from flashstate.replay.preflight import Target, TargetError, check_length, find_model, probe
from flashstate.replay.run_log import RunLog
from flashstate.replay.totals import Totals, summary
from flashstate.replay.verdict import reasons
from flashstate.traces.session import Session

_RESETS: Final = {"VLLM_SERVER_DEV_MODE": "1"}
"""Lets the cache of a server be emptied between two loads."""
_IDLE_S: Final = 60.0
_POLL_S: Final = 0.2
_RUNNING: Final = ("vllm:num_requests_running", "vllm:num_requests_waiting")


class Interrupted(Exception):
    """Ctrl-C, or a kill, while a load was running."""


@dataclass(frozen=True)
class Bench:
    """What all runs have in common. `most_tokens`: of the longest request."""

    options: Options
    traces: tuple[Session, ...]
    most_tokens: int
    model: Path
    cores: Cores
    command: str


async def run_all(bench: Bench, results: Results, screen: Screen) -> list[str]:
    """Makes the runs that `results` lacks, and says of each that is not valid why.

    Raises BenchError, Interrupted or OSError; what was measured before is then in `results`, on disk too.
    """
    invalid = []
    with pinned(bench.cores.client):
        for turn in turns(bench.options):
            loads = [n for n in turn.loads if RunKey(turn.engine.name, n, turn.repeat) not in results.runs]
            if loads:
                invalid += await _turn(bench, turn, loads, results, screen)
    return invalid


async def _turn(bench: Bench, turn: Turn, loads: list[int], results: Results, screen: Screen) -> list[str]:
    engine, invalid = turn.engine, []
    screen.starting(engine.name)
    async with _serving(bench, engine, turn.repeat) as (url, server, start_s):
        for number, sessions in enumerate(loads):
            if number and server is not None:
                await _empty(engine, url)
            key = RunKey(engine.name, sessions, turn.repeat)
            work = _run(bench, key, url, server, start_s, screen)
            try:
                found = await (work if server is None else while_alive(server, work))
            except TargetError as error:
                raise BenchError(f"{engine.name}: {error}") from None
            if found.summary["verdict"] == "valid":
                results.add(found)
                screen.finished(found)
            else:
                invalid.append(f"{engine.name}, {sessions} sessions: {'; '.join(found.summary['reasons'])}")
                screen.failed(invalid[-1])
    return invalid


@contextlib.asynccontextmanager
async def _serving(
    bench: Bench, engine: Engine, repeat: int
) -> AsyncIterator[tuple[str, Server | None, float | None]]:
    """The engine's URL, its process if it is ours, and how long its start took. It ends with the context."""
    if engine.url is not None:
        yield engine.url, None, None
        return
    options, port = bench.options, free_port()
    told = options.told(engine)
    server = Server(
        engine.name,
        serve_command(told, bench.model, options.family, options.blocks, bench.most_tokens, port),
        serve_environment(bench.cores) | _RESETS,
        port,
        options.out / "logs" / f"{RunKey(engine.name, 0, repeat).stem}.log",
    )
    _end_well()
    async with running(server, bench.cores.server) as start_s:
        yield server.url, server, start_s


def _end_well() -> None:
    """Ctrl-C, a `kill` or a terminal that closes ends what is not a load in good order: no process is left."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
            loop.add_signal_handler(number, task.cancel)


async def _run(
    bench: Bench, key: RunKey, url: str, server: Server | None, start_s: float | None, screen: Screen
) -> Result:
    options = bench.options.of_run(url, key.sessions, key.repeat)
    target = await _target(options, bench.most_tokens)
    parameters = options.parameters(bench.traces, target.model.name)
    busy, totals = Busy(server.group) if server is not None else None, Totals()

    def on_tick(now_s: float) -> None:
        screen.at(key, now_s, totals)
        if busy is not None:
            busy.read(now_s)

    records = key.records(bench.options.out)
    records.unlink(missing_ok=True)  # of a run that did not get to its end
    head = _head(bench, parameters)
    with RunLog.create(records, head) as log:
        load = Load(
            options.make_workload(bench.traces), (target,), options.ids, options.chat, options.warmup_s,
            options.measure_s, options.stall_s, head["run"],
        )  # fmt: skip
        await conduct(load, log, totals, on_tick)
    _end_well()  # the load's own way to end has gone with it
    part = totals.parts[-1]
    if part.stopped == INTERRUPTED:
        raise Interrupted
    share = None
    if busy is not None and part.opened_s is not None and part.closed_s is not None:
        share = busy.share(part.opened_s, part.closed_s)
    cost = bench.options.cost
    prefill = None if cost is None else prefill_share(records, cost, totals.measured_s)
    return Result(key, summary(totals, parameters, reasons(totals, parameters)), start_s, share, prefill)


async def _target(options: ReplayOptions, most_tokens: int) -> Target:
    """Looks at the server. Raises TargetError."""
    (url,) = options.urls
    model = await find_model(url, options.model)
    check_length(url, model, most_tokens, options.token_scale)
    return await probe(url, model, options.ids, options.stall_s, chat=options.chat)


def _head(bench: Bench, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": secrets.token_hex(6),
        "version": __version__,
        "command": bench.command,
        "parameters": parameters,
    }


async def _empty(engine: Engine, url: str) -> None:
    """Waits until the server has let go of the last load's requests, and empties its cache. Raises BenchError."""
    loop = asyncio.get_running_loop()
    limit_s = loop.time() + _IDLE_S
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_IDLE_S)) as http:
            while await _requests(http, url):
                if loop.time() > limit_s:
                    raise BenchError(
                        f"{engine.name}: still has requests {_IDLE_S:.0f} s after they were dropped"
                    )
                await asyncio.sleep(_POLL_S)
            async with http.post(f"{url}/reset_prefix_cache") as response:
                response.raise_for_status()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise BenchError(
            f"{engine.name}: its cache cannot be emptied: {error or type(error).__name__}"
        ) from None


async def _requests(http: aiohttp.ClientSession, url: str) -> bool:
    """Whether the server has any."""
    async with http.get(f"{url}/metrics") as response:
        response.raise_for_status()
        lines = (await response.text()).splitlines()
    return any(float(line.rsplit(None, 1)[1]) for line in lines if line.startswith(_RUNNING))
