from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashstate.core.cost import PrefillCostModel
from flashstate.simulate.conversation import Ask, Conversation
from flashstate.simulate.engine_cache import EngineCache
from flashstate.simulate.engine_clock import Engine, Serving, run_engine
from flashstate.simulate.path import SimPath
from flashstate.simulate.pool import ids
from flashstate.simulate.result import RunKey, RunResult
from flashstate.simulate.rules import Rules
from flashstate.simulate.run import Trajectories
from flashstate.simulate.schedule import Request
from flashstate.simulate.scheduler import Job
from flashstate.simulate.systems import System, systems
from flashstate.simulate.timing import TimeModel
from flashstate.simulate.waiting import PATIENCE_S, order_names
from tests.simulate.sessions import make_geometry, make_workload

PLAYABLE = [name for name, system in systems().items() if not system.needs_a_schedule]

TIMES = TimeModel(
    prefill=PrefillCostModel(1e-3, 0.0),
    decode_step_s=0.01,
    decode_sequence_s=0.001,
    decode_token_s=1e-6,
    max_batched_tokens=4000,
    long_prefill_tokens=2000,
    gpus=2,
)
"""A second for 1,000 tokens of prompt."""


def make_growing(turns: int, prompt: int, output: int, gap_s: float = 0.0, step: int = 100) -> Trajectories:
    """One trajectory: each prompt is the whole of the last turn and `step` tokens more."""
    path = SimPath.first(None, 1, 1, prompt + output)
    asks = [Ask(prompt, output, 0.0, 1.0, "tool_use", path)]
    for turn in range(1, turns):
        total = len(path) + step + output
        path = path.branch(len(path), turn + 1, total)
        asks.append(Ask(total - output, output, gap_s, 1.0, "tool_use", path))
    return ((Conversation("main", tuple(asks)),),)


def make_rules(sessions: int = 1, duration_s: float = 100.0, warmup_s: float = 0.0, seed: int = 0) -> Rules:
    return Rules(sessions, seed, duration_s, warmup_s, spread_s=0.0)


def make_engine(
    trajectories: Trajectories,
    rules: Rules,
    policy: str = "flashstate",
    blocks: int = 1000,
    serving: Serving | None = None,
) -> Engine:
    system: System = systems()[policy]
    return Engine(trajectories, rules, make_geometry(blocks), system, serving or Serving(TIMES))


def run(
    trajectories: Trajectories,
    rules: Rules,
    policy: str = "flashstate",
    blocks: int = 1000,
    serving: Serving | None = None,
) -> RunResult:
    key = RunKey(policy, rules.sessions, rules.seed, "engine", "tiny")
    return run_engine(
        key, trajectories, rules, make_geometry(blocks), systems()[policy], serving or Serving(TIMES), check
    )


def check(cache: EngineCache) -> None:
    """Free + held = total, and every hold is a running request's or the cache's."""
    pool = cache.pool
    assert 0 <= pool.free == pool.capacity - pool.used
    holds = sum(len(ids(running.kv)) + len(running.state) for running in cache._running.values())
    assert sum(pool._holders.values()) == holds + cache.cache.resident_blocks


# --- known answers ----------------------------------------------------------------------------------------


def test_one_request_alone() -> None:
    served = run(make_growing(1, prompt=5000, output=11), make_rules()).served
    first = 5.0  # T(0, 5000), in three chunks
    decode = sum(0.011 + (5000 + step) * 1e-6 for step in range(10))
    assert served["ttft_p50_s"] == pytest.approx(first)
    assert served["ttft_p99_s"] == pytest.approx(first)
    assert served["latency_mean_s"] == pytest.approx(first + decode)
    assert served["worst_wait_s"] == 0.0
    assert served["busy_share"] == pytest.approx(1.0)
    assert served["running_mean"] == pytest.approx(1.0)


def test_throughput_is_a_minute_and_gpu() -> None:
    # A request takes 5.16 s: 19 first tokens in 100 s, the last one at 97.9 s; 19 whole outputs, and some of a 20th.
    served = run(make_growing(1, prompt=5000, output=11), make_rules()).served
    assert served["prompt_tokens_per_min"] == pytest.approx(19 * 5000 / 100 * 60 / 2)
    assert 18 * 11 < served["output_tokens_per_min"] * 2 / 60 * 100 <= 19 * 11
    assert served["trajectories_finished"] == 19


def test_the_window_is_what_is_measured() -> None:
    rules = make_rules(warmup_s=50.0)
    served = run(make_growing(1, prompt=5000, output=11), rules).served
    assert served["busy_share"] == pytest.approx(1.0)
    assert served["prompt_tokens_per_min"] == pytest.approx(10 * 5000 / 50 * 60 / 2)


def test_two_requests_share_steps() -> None:
    served = run(make_growing(1, prompt=1000, output=3), make_rules(sessions=2)).served
    # Both prompts in one step, then two steps of two decodes.
    decode = 2 * (0.010 + 2 * 0.001) + (2000 + 2002) * 1e-6
    assert served["ttft_p50_s"] == pytest.approx(2.0)
    assert served["latency_mean_s"] == pytest.approx(2.0 + decode)
    assert served["running_mean"] == pytest.approx(2.0)


def test_what_exceeds_the_budget_waits() -> None:
    times = replace(TIMES, max_batched_tokens=1000, long_prefill_tokens=1000)
    rules = make_rules(sessions=2, duration_s=2.1)
    served = run(make_growing(1, prompt=1000, output=300), rules, serving=Serving(times)).served
    # The second's 999 tokens beside a decode, then its last one beside another.
    second = 1.0 + (0.999 + 0.011 + 1000e-6) + (0.001 + 0.011 + 1001e-6)
    assert served["ttft_p50_s"] == pytest.approx((1.0 + second) / 2)
    assert served["worst_wait_s"] == pytest.approx(1.0)
    assert served["unserved"] == 0.0


def test_who_never_got_a_first_token_has_waited_too() -> None:
    times = replace(TIMES, max_batched_tokens=1000, max_sequences=1)
    served = run(
        make_growing(1, prompt=1000, output=1000), make_rules(2, duration_s=10.0), serving=Serving(times)
    ).served
    assert served["unserved"] == 1
    assert served["worst_wait_s"] == pytest.approx(10.0)


def test_the_next_turn_comes_after_the_answer_and_its_gap_and_resumes_there() -> None:
    engine = make_engine(make_growing(40, prompt=1000, output=5, gap_s=7.0), make_rules())
    engine.run(check)
    requests = engine.requests()
    assert len(requests) > 5
    for before, after in pairwise(requests):
        assert after.start_s == pytest.approx(before.end_s + 7.0)
        # 100 tokens of its own, and the last one of the answer, are all it computes.
        assert after.end_s - after.start_s == pytest.approx(
            0.101 + sum(0.011 + (after.ask.prompt_tokens + step) * 1e-6 for step in range(4))
        )
    resumed = [a.resumed_tokens for a in engine.tally.attributions[1:]]
    assert resumed == [len(request.path) - 1 for request in requests[: len(resumed)]]


def test_sub_agents_start_when_the_main_agents_turn_ends() -> None:
    ((main,),) = make_growing(10, prompt=1000, output=5, gap_s=50.0)
    sub = Conversation("sub", (Ask(500, 5, 3.0, 1.0, "", SimPath.first(None, 1, 99, 505)),), spawn=8)
    engine = make_engine(((main, sub),), make_rules(duration_s=400.0))
    engine.run(check)
    requests = engine.requests()
    (spawned,) = [r for r in requests if len(r.path) == 505]
    (spawner,) = [r for r in requests if r.turn == 8]
    assert spawned.start_s == pytest.approx(spawner.end_s + 3.0)
    assert spawned.conversation == spawner.conversation + 1


def test_a_request_that_can_never_fit_is_refused() -> None:
    served = run(make_growing(3, prompt=5000, output=5), make_rules(), blocks=21).served
    assert served["too_long"] > 10
    assert served["prompt_tokens_per_min"] == 0.0


def test_waiting_turns_keep_their_states() -> None:
    engine = make_engine(make_growing(2, prompt=1000, output=24), make_rules(), "gds", blocks=1000).cache
    first = SimPath.first("first", 256, 1, 1024)
    second = SimPath.first("second", 256, 1, 2048)
    for number, path in enumerate((first, second)):
        request = Request(number, 0, number, 0, 0.0, 1.0, Ask(len(path) - 24, 24, 0.0, 1.0, "", path), path)
        engine.start(request, float(number))
        engine.end(request, number + 0.5)
    again = first.branch(1024, 2, 1300)
    waiting = Request(9, 0, 0, 1, 2.0, 3.0, Ask(1200, 100, 0.0, 1.0, "", again), again)
    engine.wait(waiting, 1200, 2.0)
    while (eviction := engine.cache.evict(3.0)) is not None:
        engine.pool.let_go(eviction.freed)
        if engine.cache.resident_blocks <= 4 + 2:
            break
    # Shorter and older, and yet the last that is left.
    assert engine.resumable(waiting, 1200) == 1024


# --- conservation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", PLAYABLE)
@settings(max_examples=6)
@given(
    seed=st.integers(0, 10_000),
    sessions=st.integers(1, 6),
    blocks=st.integers(20, 120),
    order=st.sampled_from(order_names()),
    guard=st.sampled_from([None, 0.3, 0.9]),
)
def test_nothing_is_lost(
    policy: str, seed: int, sessions: int, blocks: int, order: str, guard: float | None
) -> None:
    rules = Rules(sessions, seed, duration_s=200.0, warmup_s=0.0, spread_s=20.0)
    serving = Serving(replace(TIMES, max_sequences=4), order, guard)
    engine = make_engine(make_workload(3, seed).trajectories, rules, policy, blocks, serving)
    engine.run(check)
    scheduler = engine.scheduler
    running, waiting = set(scheduler.running), set(scheduler.waiting)
    ended = {job for job in engine._jobs if job in engine._ends}
    assert running | waiting | ended == set(engine._jobs)
    assert len(running) + len(waiting) + len(ended) == len(engine._jobs)
    assert all(job.is_done for job in ended)
    assert not any(job.is_done for job in running | waiting)
    assert all(job.generated <= job.request.ask.output_tokens for job in engine._jobs)
    # Counted as they came, and once.
    assert sum(job.generated for job in engine._jobs) <= engine.served.output_tokens + 1e-6
    in_flight = 4 * max(job.request.ask.output_tokens for job in engine._jobs) if engine._jobs else 0
    assert engine.served.output_tokens <= sum(job.generated for job in engine._jobs) + in_flight
    assert len(engine.served.latencies) == len(ended)
    if guard is not None:
        assert scheduler._guard is not None
        assert sum(scheduler._guard._running.values()) == len(running)


@pytest.mark.parametrize("policy", ["vllm-dense", "gds", "flashstate", "sglang"])
def test_for_want_of_blocks_the_latest_is_preempted_and_all_goes_on(policy: str) -> None:
    if policy not in systems():
        pytest.skip(f"no system {policy}")
    blocks = 30 if policy != "sglang" else 57
    rules = make_rules(sessions=3, duration_s=600.0)
    engine = make_engine(make_growing(1, prompt=1024, output=2048), rules, policy, blocks)
    engine.run(check)
    assert engine.scheduler.preempted > 0
    # The first three: each takes 12 blocks and a state in the end, two fit at a time.
    first, second, third = engine._jobs[:3]
    assert first.waited_s == second.waited_s == 0.0 < third.waited_s
    # What it had put out is part of what it computes then.
    assert first.tokens == second.tokens == 1024 < third.tokens < 1024 + 2048
    assert engine._ends[first] == engine._ends[second] < engine._ends[third] < 600
    assert len(engine.tally.attributions) == len(engine.served.ttfts) >= 3
    assert engine.served.output_tokens == pytest.approx(
        sum(job.generated for job in engine._jobs), abs=3 * 2048
    )


def test_waits_before_and_after_a_preemption_add_up() -> None:
    engine = make_engine(make_growing(1, prompt=1024, output=2048), make_rules())
    scheduler = engine.scheduler
    request = engine.clients.send(engine.clients.first()[0][1], 0.0)
    job = Job(0, "one", 0.0, 1024, 12, request, 0.0)
    scheduler.add(job, 0.0)
    for now in (5.0, 10.0):
        step = scheduler.plan(now, 1.0)
        assert step is not None and [chunk[0] for chunk in step.chunks] == [job]
        scheduler.complete(step, now + 1.0)
        scheduler._preempt(job, now + 2.0)
    assert job.waited_s == 5.0 + (10.0 - 7.0)
    # One token was put out each time, and the state behind the last one that was computed is there.
    assert job.tokens == 1024 + 2
    assert scheduler.cache.resumable(request, job.tokens) == 1024 + 1


def test_a_preempted_request_resumes_from_its_own_state() -> None:
    rules = make_rules(sessions=3, duration_s=600.0)
    trajectories = make_growing(1, prompt=1024, output=2048)
    kept = run(trajectories, rules, "flashstate", 30).served
    lost = run(trajectories, rules, "vllm-dense", 30).served
    assert kept["preemptions"] > 0 and lost["preemptions"] > 0
    # Whoever keeps no state of what was generated computes it again.
    assert kept["output_tokens_per_min"] >= lost["output_tokens_per_min"]


# --- load -------------------------------------------------------------------------------------------------


def test_load_feeds_back_and_throughput_saturates() -> None:
    trajectories = make_growing(1, prompt=200, output=500)
    served = [run(trajectories, make_rules(n), blocks=100_000).served for n in (1, 2, 8, 32)]
    output = [figures["output_tokens_per_min"] for figures in served]
    ttft = [figures["ttft_p90_s"] for figures in served]
    # A request costs 0.2 s for its prompt and 500 * (1 + 0.45) ms for its part of decode steps; the rest is shared.
    limit = 500 / (0.2 + 500 * 1.45e-3) * 60 / 2
    assert output == sorted(output)
    assert output[1] > 1.7 * output[0]
    assert 0.7 * limit < output[3] < 1.5 * output[2]
    assert output[3] <= limit
    assert ttft == sorted(ttft)
    assert ttft[3] > 5 * ttft[0]
    assert all(figures["busy_share"] <= 1 + 1e-9 for figures in served)


def test_the_same_seed_gives_the_same_run_and_another_another() -> None:
    trajectories = make_workload().trajectories
    rules = Rules(3, 0, duration_s=240.0, warmup_s=60.0, spread_s=20.0)
    once, again = (run(trajectories, rules, blocks=60) for _ in range(2))
    assert replace(once, wall_s=0.0) == replace(again, wall_s=0.0)
    assert run(trajectories, replace(rules, seed=1), blocks=60).served != once.served


def test_results_round_trip_through_json() -> None:
    result = run(make_workload().trajectories, make_rules(3), blocks=40)
    assert result.served["prompt_tokens_per_min"] > 0
    assert RunResult.from_json(json.loads(json.dumps(result.as_json()))) == result


def test_an_order_changes_who_is_served_first() -> None:
    long = make_growing(1, prompt=9000, output=2)[0]
    short = make_growing(1, prompt=300, output=2)[0]
    times = replace(TIMES, max_sequences=1)
    rules = make_rules(sessions=6, duration_s=300.0)
    medians = {
        order: run((long, short), rules, serving=Serving(times, order)).served["ttft_p50_s"]
        for order in ("fcfs", "hrrn")
    }
    assert medians["hrrn"] < medians["fcfs"] / 2


def test_a_guard_keeps_contexts_that_would_evict_each_other() -> None:
    # Contexts of ten blocks and more, with a state of two, and room for three of six.
    trajectories = make_growing(60, prompt=2500, output=5, gap_s=2.0, step=20)
    rules = make_rules(sessions=6, duration_s=900.0)
    free = run(trajectories, rules, blocks=40)
    held = run(trajectories, rules, blocks=40, serving=Serving(TIMES, guard=0.9))
    assert held.hit_rate > free.hit_rate + 0.2
    assert held.served["prompt_tokens_per_min"] > 1.5 * free.served["prompt_tokens_per_min"]
    assert held.served["worst_wait_s"] < PATIENCE_S


@pytest.mark.parametrize("guard", [0.0, -1.0, float("inf"), float("nan")])
def test_a_guard_that_makes_no_sense(guard: float) -> None:
    with pytest.raises(ValueError, match="must be finite and above 0"):
        Serving(guard=guard)


def test_an_unknown_order() -> None:
    with pytest.raises(ValueError, match="order 'lifo'"):
        Serving(order="lifo")
