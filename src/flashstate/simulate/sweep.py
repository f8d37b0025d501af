"""Many runs over the cores, each in a forked process of its own: the trajectories are shared, not copied.

A run that raises, or whose process dies, is a `Failure`; the others go on.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Final

from flashstate.simulate.engine_clock import run_engine
from flashstate.simulate.result import RunKey, RunResult
from flashstate.simulate.run import run_recorded
from flashstate.simulate.setup import ENGINE, Setup
from flashstate.simulate.systems import System

LOOK_S: Final = 0.25
"""Seconds between two calls of `tick`, at most."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Failure:
    """A run without a result, and why: one line."""

    key: RunKey
    reason: str


Tick = Callable[[Sequence[RunKey]], None]


def run_one(setup: Setup, system: System, key: RunKey) -> RunResult:
    """The run that `key` names."""
    rules = replace(setup.rules, sessions=key.sessions, seed=key.seed)
    trajectories, geometry = setup.workload.trajectories, setup.geometry
    if key.clock == ENGINE:
        return run_engine(key, trajectories, rules, geometry, system, setup.serving)
    return run_recorded(key, trajectories, rules, geometry, system)


def sweep(
    setup: Setup, systems: Mapping[str, System], keys: Sequence[RunKey], jobs: int, tick: Tick
) -> Generator[RunResult | Failure]:
    """Does the runs, `jobs` at a time, and yields each as it ends. `tick` is told which are running.

    Whatever ends the iteration early, an interrupt too, ends the processes.
    """
    waiting = list(reversed(keys))
    running: dict[Connection, tuple[RunKey, ForkProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                key = waiting.pop()
                connection, process = _start(setup, systems[key.policy], key)
                running[connection] = (key, process)
            tick([key for key, _ in running.values()])
            for ready in wait(list(running), timeout=LOOK_S):
                assert isinstance(ready, Connection)
                key, process = running.pop(ready)
                yield _outcome(key, ready, process)
    finally:
        for _, process in running.values():
            process.terminate()
        for connection, (_, process) in running.items():
            process.join()
            connection.close()


def _start(setup: Setup, system: System, key: RunKey) -> tuple[Connection, ForkProcess]:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_work, args=(sender, setup, system, key), daemon=True
    )
    with _no_signals():
        process.start()
    sender.close()
    return receiver, process


def _work(sender: Connection, setup: Setup, system: System, key: RunKey) -> None:
    """The forked process. Ctrl-C reaches it too, but its parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    gc.disable()  # the process ends with its run; and the parent's pages stay shared
    try:
        sender.send(run_one(setup, system, key))
    except Exception as error:
        lines = str(error).strip().splitlines()
        sender.send(Failure(key, f"{type(error).__name__}{': ' + lines[0] if lines else ''}"))


@contextlib.contextmanager
def _no_signals() -> Iterator[None]:
    """A signal between the fork and the child's first line would end the child with a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outcome(key: RunKey, connection: Connection, process: ForkProcess) -> RunResult | Failure:
    outcome: RunResult | Failure | None = None
    with contextlib.suppress(EOFError):  # it died without a word
        outcome = connection.recv()
    connection.close()
    process.join()
    if outcome is not None:
        return outcome
    code = process.exitcode or 0
    return Failure(
        key, f"its process was killed by signal {-code}" if code < 0 else f"it ended with code {code}"
    )
