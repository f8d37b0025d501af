from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from flashstate.replay.client import CompletionClient
from flashstate.replay.driver import Replay, Window, replay
from flashstate.replay.plan import Workload
from flashstate.replay.record import Record, read_records, write_records
from flashstate.replay.recorded import RecordedWorkload, Scale
from flashstate.replay.synthetic import Shape, SyntheticWorkload
from flashstate.traces.weka import read_weka
from tests.replay.server import FakeEngine, serving

IDS = range(16, 2048)
QUICK = Shape(
    sessions=3, turns=6, first_prompt=(50, 90), tool_result=(5, 30), output=(2, 5), gap_s=(0.0, 0.01)
)
SMALL_TRACE = Path(__file__).parents[1] / "traces" / "small.json"


def run(
    engine: FakeEngine, workload: Workload | None = None, window: Window | None = None, stall_s: float = 5.0
) -> tuple[Replay, list[Record]]:
    seen: list[Record] = []

    async def go() -> Replay:
        async with serving(engine) as url, CompletionClient(url, "tiny", stall_s) as client:
            work = workload or SyntheticWorkload(QUICK, seed=4)
            return await replay(work, client, IDS, window or Window(), seen.append)

    return asyncio.run(go()), seen


def test_all_the_work_is_done_and_recorded() -> None:
    result, seen = run(FakeEngine())
    assert list(result.records) == seen
    assert result.measured == result.records
    assert len(seen) == SyntheticWorkload(QUICK, 4).requests
    assert Counter(record.kind for record in seen) == {
        "first": 3,
        "extends": len(seen) - 5,
        "edit": 1,
        "fork": 1,
    }
    assert all(record.error is None for record in seen)
    assert {record.session for record in seen} == {
        "session-00",
        "session-00/fork",
        "session-01",
        "session-02",
    }


def test_a_perfect_cache_leaves_nothing_to_recompute() -> None:
    result, _ = run(FakeEngine())
    ends = {(r.session, r.turn): r.prompt_tokens + r.output_tokens - 1 for r in result.records}
    for record in result.records:
        assert record.cached_tokens == record.ideal_tokens
        assert record.recomputed_tokens == 0
        if record.kind == "extends":
            assert record.ideal_tokens == ends[record.session, record.turn - 1]


def test_generated_tokens_go_into_the_next_prompt() -> None:
    engine = FakeEngine()
    run(engine, SyntheticWorkload(Shape(sessions=1, turns=4, first_prompt=(20, 30), gap_s=(0, 0)), seed=1))
    prompts = sorted((body["prompt"] for body in engine.bodies), key=len)
    first, second = prompts[0], prompts[1]
    generated = [sum(first) % 1000 + 16]
    assert second[: len(first) + 1] == first + generated


def test_errors_are_counted_and_sessions_go_on() -> None:
    faults = {2: "500", 5: "drop", 8: "stall"}
    result, seen = run(FakeEngine(fault=faults.get), stall_s=0.3)
    assert len(seen) == SyntheticWorkload(QUICK, 4).requests
    assert Counter(record.error_kind for record in seen if record.error) == {
        "http 500": 1,
        "dropped": 1,
        "stall": 1,
    }
    planned = {
        (play.name if step.agent == "main" else f"{play.name}/{step.agent}", step.turn): step.prompt_tokens
        for session in range(3)
        for play in SyntheticWorkload(QUICK, 4).plays(session)
        for agent in play.agents
        for step in agent
    }
    assert {(r.session, r.turn): r.prompt_tokens for r in result.records} == planned


def test_misses_are_those_of_the_measured_time() -> None:
    engine = FakeEngine(missed=1000)
    result, seen = run(engine)
    assert result.misses_tokens == {"placement": 10 * len(seen), "capacity": 10 * len(seen), "dependency": 0}


def test_a_server_that_does_not_count_misses() -> None:
    result, _ = run(FakeEngine(counts_misses=False))
    assert result.misses_tokens is None


def endless() -> RecordedWorkload:
    return RecordedWorkload((read_weka(SMALL_TRACE),), Scale(time=1000), sessions=2, seed=1, spread_s=0.1)


def test_a_window_leaves_out_the_warm_up_and_what_is_not_over() -> None:
    result, seen = run(FakeEngine(delay_s=0.002), endless(), Window(warmup_s=0.5, measure_s=0.7))
    assert result.opened_s == pytest.approx(0.5, abs=0.2)
    assert result.closed_s == pytest.approx(1.2, abs=0.3)
    assert 0 < len(result.measured) < len(seen)
    assert all(result.opened_s <= record.end_s <= result.closed_s for record in result.measured)


def test_recorded_sessions_play_their_sub_agents() -> None:
    _, seen = run(FakeEngine(), endless(), Window(measure_s=1.0))
    names = {record.session for record in seen}
    assert {name.partition("/")[2] for name in names} == {"", "agent_001", "agent_002"}
    assert len({name.partition("/")[0] for name in names}) > 4  # trajectory after trajectory


def test_a_cancelled_run_leaves_no_task() -> None:
    async def go() -> None:
        async with serving(FakeEngine(delay_s=0.05)) as url, CompletionClient(url, "tiny") as client:
            running = asyncio.create_task(replay(endless(), client, IDS, Window()))
            await asyncio.sleep(0.3)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            mine = [task for task in asyncio.all_tasks() if "_Session" in repr(task.get_coro())]
            assert mine == []

    asyncio.run(go())


def test_records_are_kept(tmp_path: Path) -> None:
    result, seen = run(FakeEngine(fault={1: "500"}.get))
    path = tmp_path / "records" / "x.jsonl"
    write_records(result.records, path)
    assert read_records(path) == seen
