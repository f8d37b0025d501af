from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flashstate.replay.client import Model
from flashstate.replay.conduct import Load, conduct
from flashstate.replay.plan import Workload
from flashstate.replay.preflight import Target
from flashstate.replay.record import Record
from flashstate.replay.recorded import RecordedWorkload, Scale
from flashstate.replay.run_log import RunLog, measured_records, read_events
from flashstate.replay.synthetic import Shape, SyntheticWorkload
from flashstate.replay.totals import Totals
from flashstate.replay.verdict import reasons
from flashstate.traces.weka import read_weka
from tests.replay.server import FakeEngine, serving

QUICK = Shape(
    sessions=3, turns=6, first_prompt=(50, 90), tool_result=(5, 30), output=(2, 5), gap_s=(0.0, 0.01)
)
SMALL_TRACE = Path(__file__).parents[1] / "traces" / "small.json"


@dataclass(frozen=True)
class Ran:
    totals: Totals
    path: Path
    measure_s: float | None

    @property
    def records(self) -> list[Record]:
        """The measured ones."""
        return measured_records(self.path)

    @property
    def verdict(self) -> list[str]:
        return reasons(self.totals, {"measure_s": self.measure_s, "max_failed_percent": 100.0})

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in read_events(self.path) if event["event"] == kind]


def make_load(
    url: str,
    workload: Workload,
    warmup_s: float = 0.0,
    measure_s: float | None = None,
    stall_s: float = 5.0,
) -> Load:
    target = Target(url, Model("tiny", None), takes_salt=True, says_cached=True)
    return Load(workload, (target,), range(16, 2048), False, warmup_s, measure_s, stall_s, "r")


def run(path: Path, engine: FakeEngine, workload: Workload | None = None, **window: Any) -> Ran:
    totals = Totals()

    async def go() -> None:
        async with serving(engine) as url:
            load = make_load(url, workload or SyntheticWorkload(QUICK, seed=4), **window)
            with RunLog.create(path / "r.jsonl", {"run": "r", "parameters": {}}) as log:
                await conduct(load, log, totals)

    asyncio.run(go())
    return Ran(totals, path / "r.jsonl", window.get("measure_s"))


def test_all_the_work_is_done_and_recorded(tmp_path: Path) -> None:
    ran = run(tmp_path, FakeEngine())
    assert ran.verdict == []
    assert len(ran.records) == SyntheticWorkload(QUICK, 4).requests == ran.totals.answered
    assert Counter(record.kind for record in ran.records) == {
        "first": 3,
        "extends": len(ran.records) - 5,
        "edit": 1,
        "fork": 1,
    }
    assert {record.session for record in ran.records} == {
        "session-00",
        "session-00/fork",
        "session-01",
        "session-02",
    }
    (closed,) = ran.events("closed")
    assert closed["over"] and closed["stopped"] is None
    assert closed["s"] == pytest.approx(max(record.end_s for record in ran.records), abs=0.5)


def test_a_window_longer_than_the_work_ends_with_it(tmp_path: Path) -> None:
    ran = run(tmp_path, FakeEngine(), measure_s=60.0)
    (why,) = ran.verdict
    assert why.endswith(" of 60 s were measured: the work was over")
    assert ran.totals.answered == SyntheticWorkload(QUICK, 4).requests
    assert ran.totals.measured_s < 30


def test_a_window_shorter_than_the_work_leaves_the_rest(tmp_path: Path) -> None:
    ran = run(tmp_path, FakeEngine(delay_s=0.02), measure_s=0.4)
    assert ran.verdict == []
    assert 0 < ran.totals.answered < SyntheticWorkload(QUICK, 4).requests
    assert not ran.totals.parts[-1].over


def test_without_a_warm_up_the_window_is_open_before_the_first_request(tmp_path: Path) -> None:
    ran = run(tmp_path, FakeEngine(metrics_delay_s=1.5))
    assert ran.verdict == []
    assert ran.totals.requests == ran.totals.measured == SyntheticWorkload(QUICK, 4).requests
    assert ran.totals.parts[0].opened_s == 0.0


def test_work_that_was_not_done_makes_no_valid_run(tmp_path: Path) -> None:
    ran = run(tmp_path, FakeEngine(fault=lambda number: "500" if number > 3 else None), stall_s=0.2)
    (why,) = ran.verdict
    assert why.startswith("not all the work was done: ") and "answered nothing for" in why


def test_a_perfect_cache_leaves_nothing_to_recompute(tmp_path: Path) -> None:
    records = run(tmp_path, FakeEngine()).records
    ends = {(r.session, r.turn): r.prompt_tokens + r.output_tokens - 1 for r in records}
    for record in records:
        assert record.cached_tokens == record.ideal_tokens
        assert record.recomputed_tokens == 0
        if record.kind == "extends":
            assert record.ideal_tokens == ends[record.session, record.turn - 1]


def test_generated_tokens_go_into_the_next_prompt(tmp_path: Path) -> None:
    engine = FakeEngine()
    run(
        tmp_path,
        engine,
        SyntheticWorkload(Shape(sessions=1, turns=4, first_prompt=(20, 30), gap_s=(0, 0)), seed=1),
    )
    prompts = sorted((body["prompt"] for body in engine.bodies), key=len)
    first, second = prompts[0], prompts[1]
    generated = [sum(first) % 1000 + 16]
    assert second[: len(first) + 1] == first + generated


def test_errors_are_counted_and_sessions_go_on(tmp_path: Path) -> None:
    faults = {2: "500", 5: "drop", 8: "stall"}
    ran = run(tmp_path, FakeEngine(fault=faults.get), stall_s=0.3)
    assert len(ran.records) == SyntheticWorkload(QUICK, 4).requests
    assert ran.totals.errors == {"http 500": 1, "dropped": 1, "stall": 1}
    planned = {
        (play.name if step.agent == "main" else f"{play.name}/{step.agent}", step.turn): step.prompt_tokens
        for session in range(3)
        for play in SyntheticWorkload(QUICK, 4).plays(session)
        for agent in play.agents
        for step in agent
    }
    assert {(r.session, r.turn): r.prompt_tokens for r in ran.records} == planned


def test_misses_are_those_of_the_measured_time(tmp_path: Path) -> None:
    ran = run(tmp_path, FakeEngine(missed=1000))
    missed = 10 * len(ran.records)
    assert ran.totals.missed_tokens == {"placement": missed, "capacity": missed, "dependency": 0}


def test_a_server_that_does_not_count_misses(tmp_path: Path) -> None:
    assert not run(tmp_path, FakeEngine(counts_misses=False)).totals.missed_tokens


def endless() -> RecordedWorkload:
    return RecordedWorkload((read_weka(SMALL_TRACE),), Scale(time=1000), sessions=2, seed=1, spread_s=0.1)


def test_a_window_leaves_out_the_warm_up_and_what_is_not_over(tmp_path: Path) -> None:
    ran = run(tmp_path, FakeEngine(delay_s=0.002), endless(), warmup_s=0.5, measure_s=0.7)
    opened_s, closed_s = ran.totals.parts[0].opened_s, ran.totals.parts[0].closed_s
    assert opened_s is not None and closed_s is not None
    assert opened_s == pytest.approx(0.5, abs=0.2)
    assert closed_s == pytest.approx(1.2, abs=0.3)
    assert 0 < len(ran.records) < len(ran.events("request"))
    assert all(opened_s <= record.end_s <= closed_s for record in ran.records)


def test_recorded_sessions_play_their_sub_agents(tmp_path: Path) -> None:
    ran = run(tmp_path, FakeEngine(), endless(), measure_s=1.0)
    names = {record.session for record in ran.records}
    assert {name.partition("/")[2] for name in names} == {"", "agent_001", "agent_002"}
    assert len({name.partition("/")[0] for name in names}) > 4  # trajectory after trajectory


def test_a_cancelled_run_leaves_no_task(tmp_path: Path) -> None:
    async def go() -> None:
        async with serving(FakeEngine(delay_s=0.05)) as url:
            with RunLog.create(tmp_path / "r.jsonl", {"run": "r", "parameters": {}}) as log:
                running = asyncio.create_task(conduct(make_load(url, endless()), log, Totals()))
                await asyncio.sleep(0.3)
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            mine = [task for task in asyncio.all_tasks() if "_Session" in repr(task.get_coro())]
            assert mine == []

    asyncio.run(go())
