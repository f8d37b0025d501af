from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashstate.core.counters import MISS_REASONS
from flashstate.simulate.conversation import Ask, Conversation
from flashstate.simulate.path import SimPath
from flashstate.simulate.result import RunKey, RunResult
from flashstate.simulate.rules import Rules
from flashstate.simulate.run import Trajectories, play, run_recorded, working_set
from flashstate.simulate.schedule import events, schedule
from flashstate.simulate.systems import systems
from tests.simulate.sessions import make_geometry, make_workload

RULES = Rules(sessions=3, duration_s=240.0, warmup_s=60.0, spread_s=20.0)


def make_growing(turns: int, step: int = 100, api_s: float = 1.0, gap_s: float = 9.0) -> Trajectories:
    """One trajectory: each prompt is the whole of the last turn and `step` tokens more; `step` tokens come out."""
    path = SimPath.first(None, 1, 1, 2 * step)
    asks = [Ask(step, step, 0.0, api_s, "tool_use", path)]
    for turn in range(1, turns):
        total = 2 * step * (turn + 1)
        path = path.branch(len(path), turn + 1, total)
        asks.append(Ask(total - step, step, gap_s, api_s, "tool_use", path))
    return ((Conversation("main", tuple(asks)),),)


def run(trajectories: Trajectories, rules: Rules, policy: str = "gds", blocks: int = 60) -> RunResult:
    key = RunKey(policy, rules.sessions, rules.seed, "recorded", "tiny")
    geometry = make_geometry(blocks)
    return run_recorded(key, play(trajectories, rules, geometry), rules, geometry, systems()[policy])


@pytest.mark.parametrize("policy", list(systems()))
def test_turns_that_fit_resume_where_the_last_one_ended(policy: str) -> None:
    trajectories = make_growing(turns=8)
    rules = Rules(sessions=1, duration_s=300.0, warmup_s=0.0, spread_s=0.0)
    result = run(trajectories, rules, policy, blocks=10_000)
    requests = schedule(trajectories, rules, 256)
    # From turn 4 on: 4 turns, a turn every 10 s; then whole trajectories at 31, 102 and 173 s, and 6 turns from 244 s.
    assert [r.start_s for r in requests if r.turn == 0] == [31.0, 102.0, 173.0, 244.0]
    assert result.requests == len(requests) == 4 + 3 * 8 + 6
    continued = [r for r in requests if r.turn > 0 and r.number > 0]
    assert len(continued) == 34 - 5
    assert result.ideal_tokens == sum(r.ask.prompt_tokens - 100 for r in continued)
    if policy not in ("vllm-dense", "vllm-sparse", "dense-1088", "sglang"):  # they keep no request's end
        assert result.resumed_tokens == result.ideal_tokens
    assert result.hit_rate == result.resumed_tokens / sum(r.ask.prompt_tokens for r in requests)


def test_only_what_starts_in_the_window_counts() -> None:
    trajectories = make_growing(turns=40)
    rules = Rules(sessions=1, duration_s=100.0, warmup_s=35.0, spread_s=0.0)
    assert run(trajectories, rules).requests == 6  # at 40, 50, ... 90 s
    assert run(trajectories, replace(rules, warmup_s=40.0)).requests == 6
    assert run(trajectories, replace(rules, warmup_s=40.5)).requests == 5


def test_the_working_set_is_each_sessions_latest_turn() -> None:
    # No turn is longer than a block: a block and a checkpoint of two for every session, all the time.
    trajectories = make_growing(turns=3, step=10)
    rules = Rules(sessions=4, duration_s=200.0, warmup_s=50.0, spread_s=20.0)
    requests = schedule(trajectories, rules, 256)
    assert working_set(requests, rules, make_geometry()) == pytest.approx(4 * 3)
    assert run(trajectories, rules).working_set == pytest.approx(12 / 60)


def test_a_sub_agent_counts_while_it_lives() -> None:
    ((main,),) = make_growing(turns=11, step=10)
    own = SimPath.first(None, 1, 99, 20)
    sub = Conversation("sub", (Ask(10, 10, 0.0, 30.0, "", own),), spawn=2)
    rules = Rules(sessions=1, duration_s=2000.0, warmup_s=0.0, spread_s=0.0)
    requests = schedule(((main, sub),), rules, 256)
    spawned = sum(r.end_s - r.start_s for r in requests if r.ask.path is own)
    assert spawned > 30
    expected = 3 * (2000 + sum(min(r.end_s, 2000) - r.start_s for r in requests if r.ask.path is own)) / 2000
    assert working_set(requests, rules, make_geometry()) == pytest.approx(expected)


def test_results_round_trip_through_json() -> None:
    result = run(make_workload().trajectories, RULES, "leaf-last", blocks=30)
    assert sum(result.evictions.values()) > 0
    assert 0 < result.occupancy <= 1.2
    assert RunResult.from_json(json.loads(json.dumps(result.as_json()))) == result


def test_an_empty_window_is_all_zeros() -> None:
    rules = Rules(sessions=1, duration_s=5.0, warmup_s=4.5, spread_s=0.0)
    result = run(make_growing(turns=40), rules)
    assert (result.requests, result.hit_rate, result.ideal_rate, result.redundant_tokens) == (
        0,
        0.0,
        0.0,
        0.0,
    )


def test_unlimited_memory_holds_more_than_there_is() -> None:
    result = run(make_workload().trajectories, RULES, "infinite", blocks=10)
    assert result.occupancy > 1
    assert result.evictions == {}
    assert result.missed_tokens["capacity"] == result.missed_tokens["dependency"] == 0


@pytest.mark.parametrize("examples", [4, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("policy", list(systems()))
def test_every_token_short_of_ideal_has_one_cause(policy: str, examples: int) -> None:
    @settings(max_examples=examples)
    @given(seed=st.integers(0, 10_000), sessions=st.integers(1, 5), blocks=st.integers(1, 120))
    def check(seed: int, sessions: int, blocks: int) -> None:
        check_causes(policy, replace(RULES, sessions=sessions, seed=seed), blocks)

    check()


def check_causes(policy: str, rules: Rules, blocks: int) -> None:
    geometry = make_geometry(blocks)
    requests = schedule(make_workload(3, rules.seed).trajectories, rules, geometry.block_tokens)
    engine = systems()[policy].build(geometry, requests)
    bottomless = systems()["infinite"].build(geometry, requests)
    for now, is_end, request in events(requests):
        if is_end:
            engine.end(request, now)
            bottomless.end(request, now)
            continue
        found, ideal = engine.start(request, now), bottomless.start(request, now)
        missed = [found.missed_tokens[reason] for reason in MISS_REASONS]
        assert found.resumed_tokens + sum(missed) == found.ideal_tokens < request.ask.prompt_tokens
        assert min(found.resumed_tokens, *missed) >= 0
        assert found.ideal_tokens == ideal.ideal_tokens
    # All have ended: what is held, the cache holds.
    assert engine.pool.used == engine.cache.resident_blocks
