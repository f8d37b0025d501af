"""Starts each engine in its turn and puts the loads on it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from flashstate import __version__
from flashstate.bench.busy import Busy
from flashstate.bench.cores import Cores, available_cores, divide, pinned
from flashstate.bench.engine import Engine
from flashstate.bench.error import BenchError
from flashstate.bench.launch import serve_command, serve_environment
from flashstate.bench.options import Options
from flashstate.bench.result import Result, Results, RunKey, log_name, prefill_share
from flashstate.bench.screen import Screen
from flashstate.bench.server import Server, free_port, running, while_alive
from flashstate.bench.turns import Turn, turns
from flashstate.console import interrupts
from flashstate.models.tiny import write_tiny_model
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
    """Ctrl-C, or a kill."""


@dataclass(frozen=True)
class Bench:
    """What all runs have in common. `most_tokens`: of the longest request."""

    options: Options
    traces: tuple[Session, ...]
    most_tokens: int
    model: Path
    cores: Cores
    command: str


def make_runs(
    options: Options, traces: tuple[Session, ...], most_tokens: int, results: Results, screen: Screen
) -> list[str]:
    """Makes the runs that `results` lacks, and says of each that is not valid why.

    Raises BenchError, OSError, or Interrupted after Ctrl-C or a kill; what was measured before is then in `results`, on
    disk too, and no server is left.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="flashstate-model-") as folder:
            model = write_tiny_model(options.model, Path(folder) / options.model)
            bench = Bench(
                options, traces, most_tokens, model, divide(available_cores()), results.head["command"]
            )
            return asyncio.run(run_all(bench, results, screen))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise Interrupted from None


async def run_all(bench: Bench, results: Results, screen: Screen) -> list[str]:
    """As `make_runs`; may raise CancelledError too."""
    task = asyncio.current_task()
    assert task is not None
    runner = _Runner(bench, results, screen, task)
    with pinned(bench.cores.client):
        await _look(bench, results)
        for turn in turns(bench.options):
            loads = [n for n in turn.loads if RunKey(turn.engine.name, n, turn.repeat) not in results.runs]
            if loads:
                await runner.take(turn, loads)
    return runner.invalid


class _Runner:
    """Makes runs, in the task `task`."""

    def __init__(self, bench: Bench, results: Results, screen: Screen, task: asyncio.Task[list[str]]) -> None:
        self._bench, self._results, self._screen, self._task = bench, results, screen, task
        self.invalid: list[str] = []

    async def take(self, turn: Turn, loads: Sequence[int]) -> None:
        """Starts an engine and puts the loads on it."""
        engine = turn.engine
        self._screen.starting(engine.name)
        async with self._serving(engine, turn.repeat) as (url, server, start_s):
            self._screen.serving(engine.name, start_s)
            for number, sessions in enumerate(loads):
                if number and server is not None:
                    await _empty(engine, url)
                work = self._run(RunKey(engine.name, sessions, turn.repeat), url, server, start_s)
                try:
                    found = await (work if server is None else while_alive(server, work))
                    if server is not None:
                        await server.check()
                except TargetError as error:
                    raise BenchError(f"{engine.name}: {error}") from None
                self._take(found)

    def _take(self, found: Result) -> None:
        if found.summary["verdict"] == "valid":
            self._results.add(found)
            self._screen.finished(found)
            return
        why = "; ".join(found.summary["reasons"])
        self.invalid.append(f"{found.key}: {why}")
        self._screen.failed(found.key, why)

    @contextlib.asynccontextmanager
    async def _serving(
        self, engine: Engine, repeat: int
    ) -> AsyncIterator[tuple[str, Server | None, float | None]]:
        """The engine's URL, its process if it is ours, and how long its start took. It ends with the context."""
        self._end_well()
        if engine.url is not None:
            yield engine.url, None, None
            return
        bench, options = self._bench, self._bench.options
        port = options.port or free_port()
        server = Server(
            engine.name,
            serve_command(
                options.told(engine),
                bench.model,
                options.family,
                options.blocks,
                bench.most_tokens,
                port,
                options.chunk,
            ),
            serve_environment(bench.cores) | _RESETS,
            port,
            options.out / "logs" / log_name(engine.name, repeat),
        )
        async with running(server, bench.cores.server) as start_s:
            yield server.url, server, start_s

    def _end_well(self) -> None:
        """Ctrl-C, a `kill` or a terminal that closes ends what is not a load in good order."""
        loop = asyncio.get_running_loop()
        for number in interrupts():
            with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
                loop.add_signal_handler(number, self._task.cancel)

    async def _run(self, key: RunKey, url: str, server: Server | None, start_s: float | None) -> Result:
        bench = self._bench
        options = bench.options.of_run(url, key.sessions, key.repeat)
        target = await _target(options, bench.most_tokens)
        parameters = options.parameters(bench.traces, target.model.name)
        busy, totals = Busy(server.group) if server is not None else None, Totals()

        def on_tick(now_s: float) -> None:
            self._screen.at(key, now_s, totals)
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
            await conduct(load, log, totals, on_tick, self._end_well)
        part = totals.parts[-1]
        if part.stopped == INTERRUPTED:
            raise Interrupted
        share = None
        if busy is not None and part.opened_s is not None and part.closed_s is not None:
            share = busy.share(part.opened_s, part.closed_s)
        cost = bench.options.cost
        prefill = None if cost is None else prefill_share(records, cost, totals.measured_s)
        return Result(key, summary(totals, parameters, reasons(totals, parameters)), start_s, share, prefill)


async def _look(bench: Bench, results: Results) -> None:
    """Looks at the servers that run already, before any other is measured. Raises BenchError."""
    for engine in bench.options.engines:
        keys = [
            RunKey(engine.name, n, repeat)
            for n in bench.options.loads
            for repeat in range(bench.options.repeat)
        ]
        if engine.url is not None and any(key not in results.runs for key in keys):
            try:
                await _target(bench.options.of_run(engine.url, bench.options.loads[0], 0), bench.most_tokens)
            except TargetError as error:
                raise BenchError(f"{engine.name}: {error}") from None


async def _target(options: ReplayOptions, most_tokens: int) -> Target:
    """Looks at the server. Raises TargetError."""
    (url,) = options.urls
    model = await find_model(url, options.model, "bench takes servers of one model")
    check_length(url, model, most_tokens, options.scale)
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
