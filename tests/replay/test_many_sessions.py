"""A thousand sessions from one process: no task and no memory but for what is at work."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path

from flashstate.replay.client import Model
from flashstate.replay.conduct import Load, conduct
from flashstate.replay.dialogue import TokenDialogue
from flashstate.replay.open_files import allow_connections
from flashstate.replay.preflight import Target
from flashstate.replay.recorded import RecordedWorkload, Scale
from flashstate.replay.run_log import RunLog
from flashstate.replay.totals import Totals
from flashstate.traces.session import Agent, Session
from tests.replay.runs import ServerProcess
from tests.traces.made import make_session, make_turns


def play(
    sessions: int, trace: Session, tmp_path: Path, on_tick: Callable[[float], None], delay_s: float = 0.0
) -> Totals:
    work = RecordedWorkload((trace,), Scale(tokens=10), sessions, seed=1, spread_s=2.0)
    totals = Totals()
    allow_connections(2 * sessions)
    with (
        ServerProcess(first=10**9, delay_s=delay_s) as server,
        RunLog.create(tmp_path / "r.jsonl", {"run": "r", "parameters": {}}) as log,
    ):
        target = Target(server.url, Model("tiny", None), takes_salt=True, says_cached=True)
        load = Load(work, (target,), range(256, 999), False, 2.0, 4.0, 60.0, "r")
        asyncio.run(conduct(load, log, totals, on_tick))
    return totals


def our_tasks() -> int:
    """Without those that the HTTP client makes for a moment while it connects."""
    return sum("_Session" in repr(task.get_coro()) for task in asyncio.all_tasks())


def test_a_session_is_one_task_and_a_play_that_is_over_is_forgotten(tmp_path: Path) -> None:
    tasks, dialogues = [], 0

    def look(now_s: float) -> None:
        nonlocal dialogues
        tasks.append(our_tasks())
        if now_s > 4.0 and not dialogues:
            gc.collect()
            dialogues = sum(isinstance(thing, TokenDialogue) for thing in gc.get_objects())

    trace = make_session(prompts=[[1, 2], [1, 2, 3]], gap_s=1.0)
    totals = play(1000, trace, tmp_path, look)
    assert totals.failed + totals.failed_outside == 0
    assert totals.requests > 1000
    assert max(tasks) == 1000
    assert len(totals.done) > 100
    assert 0 < dialogues <= 1000


def test_a_sub_agent_is_a_task_only_while_it_runs(tmp_path: Path) -> None:
    tasks: list[int] = []
    main = Agent("main", None, make_turns([[n] for n in range(6)], gap_s=1.5))
    subs = tuple(Agent(f"s{n}", 3, make_turns([[50 + n]], gap_s=0.0)) for n in range(30))
    totals = play(1, Session("s", main, subs), tmp_path, lambda _: tasks.append(our_tasks()))
    assert totals.requests > 2
    assert min(tasks) == 1  # thirty that wait to be spawned are none
