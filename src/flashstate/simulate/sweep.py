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
from flashstate.simulate.rules import Rules
from flashstate.simulate.run import Played, play, run_recorded
from flashstate.simulate.setup import ENGINE, Setup
from flashstate.simulate.systems import System

LOOK_S: Final = 0.25
"""Seconds between two calls of `tick`, at most."""

_MOST_SHARED_S: Final = 500_000.0
"""Session-seconds of a schedule made before the fork: some 0.2 s of work. Longer ones each process makes itself."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Failure:
    """A run without a result, and why: one line."""

    key: RunKey
    reason: str


Tick = Callable[[Sequence[RunKey]], None]


def run_one(setup: Setup, system: System, key: RunKey, played: Played | None = None) -> RunResult:
    """The run that `key` names. `played`: what `played_by` gives for it, if it is there already."""
    rules, geometry = _rules(setup, key), setup.geometry
    if key.clock == ENGINE:
        return run_engine(key, setup.workload.trajectories, rules, geometry, system, setup.serving)
    return run_recorded(key, played or played_by(setup, key), rules, geometry, system)


def played_by(setup: Setup, key: RunKey) -> Played:
    """What the recorded clock plays in the run that `key` names: the same for every system."""
    return play(setup.workload.trajectories, _rules(setup, key), setup.geometry)


def _rules(setup: Setup, key: RunKey) -> Rules:
    return replace(setup.rules, sessions=key.sessions, seed=key.seed)


class _Schedules:
    """What runs play, made once for those of a load and a seed: they come one after another."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._last: tuple[tuple[int, int], Played] | None = None

    def of(self, key: RunKey) -> Played | None:
        """None on the engine's clock, where times depend on the system, and where it would keep others waiting."""
        if key.clock == ENGINE or key.sessions * self._setup.rules.duration_s > _MOST_SHARED_S:
            return None
        load = key.sessions, key.seed
        if self._last is None or self._last[0] != load:
            try:
                self._last = load, played_by(self._setup, key)
            except Exception:  # the run will fail by it too, and say so
                return None
        return self._last[1]


def sweep(
    setup: Setup, systems: Mapping[str, System], keys: Sequence[RunKey], jobs: int, tick: Tick
) -> Generator[RunResult | Failure]:
    """Does the runs, `jobs` at a time, and yields each as it ends. `tick` is told which are running.

    Whatever ends the iteration early, an interrupt too, ends the processes.
    """
    waiting = list(reversed(keys))
    running: dict[Connection, tuple[RunKey, ForkProcess]] = {}
    schedules = _Schedules(setup)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                key = waiting.pop()
                connection, process = _start(setup, systems[key.policy], key, schedules.of(key))
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


def _start(
    setup: Setup, system: System, key: RunKey, played: Played | None
) -> tuple[Connection, ForkProcess]:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_work, args=(sender, setup, system, key, played), daemon=True
    )
    with _no_signals():
        process.start()
    sender.close()
    return receiver, process


def _work(sender: Connection, setup: Setup, system: System, key: RunKey, played: Played | None) -> None:
    """The forked process. Ctrl-C reaches it too, but its parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    gc.disable()  # the process ends with its run; and the parent's pages stay shared
    try:
        sender.send(run_one(setup, system, key, played))
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
