from __future__ import annotations

from array import array
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashstate.traces.blocks import common_blocks
from flashstate.traces.session import BLOCK_TOKENS, Agent, Session
from flashstate.traces.synth.generate import generate
from flashstate.traces.synth.params import claude_code
from flashstate.traces.synth.tables import Shares

PARAMS = claude_code()
seeds = st.integers(0, 2**40)
few = settings(max_examples=15, deadline=None)


def make(sessions: int, seed: int = 0) -> list[Session]:
    return list(generate(PARAMS, sessions, seed))


@given(st.integers(1, 3), seeds)
@few
def test_ids_name_whole_prefixes_and_cover_every_full_block(count: int, seed: int) -> None:
    for session in make(count, seed):
        prefix_of: dict[int, tuple[int, int]] = {}  # an id's place, and the id before it
        for agent in session.agents:
            last: array[int] = array("q")
            for turn, blocks in zip(agent.turns, agent.prompts(), strict=True):
                shared = turn.shared_blocks
                assert len(blocks) == turn.block_count == turn.prompt_tokens // BLOCK_TOKENS
                assert shared == common_blocks(last, blocks)
                ids = [blocks[shared - 1] if shared else -1, *turn.new_blocks]
                for place, (before, block) in enumerate(pairwise(ids), start=shared):
                    assert prefix_of.setdefault(block, (place, before)) == (place, before)
                last = blocks


@given(st.integers(1, 3), seeds)
@few
def test_times_go_forward_and_gaps_are_from_end_to_start(count: int, seed: int) -> None:
    for session in make(count, seed):
        assert session.main.turns[0].time_s == 0.0
        for agent in session.agents:
            for before, turn in pairwise(agent.turns):
                assert turn.time_s > before.time_s
                assert turn.gap_s == pytest.approx(turn.time_s - before.end_s, abs=1e-9)
                assert turn.gap_s >= 0
        for sub in session.sub_agents:
            assert sub.spawn_turn is not None
            spawned = session.main.turns[sub.spawn_turn]
            assert sub.turns[0].time_s == pytest.approx(spawned.end_s + sub.turns[0].gap_s, abs=0.011)
            assert spawned.stop == "tool_use"


@given(st.integers(1, 3), seeds)
@few
def test_figures_make_sense(count: int, seed: int) -> None:
    for session in make(count, seed):
        for agent in session.agents:
            for turn in agent.turns:
                assert turn.prompt_tokens >= 1
                assert turn.prompt_tokens <= max(PARAMS.windows[1], agent.turns[0].prompt_tokens)
                assert turn.output_tokens >= 0
                assert turn.stop in ("tool_use", "end_turn", "")
                assert turn.api_s is None or turn.api_s > 0
                assert turn.ttft_s is None or (turn.streaming and turn.api_s is not None)
                assert turn.ttft_s is None or turn.api_s is None or turn.ttft_s <= turn.api_s


def test_the_same_seed_makes_the_same_sessions() -> None:
    assert make(5, 3) == make(5, 3)
    assert make(5, 3) != make(5, 4)


def test_a_larger_workload_begins_with_the_smaller_one() -> None:
    assert make(12)[:5] == make(5)


def test_names_differ() -> None:
    assert [session.name for session in make(3)] == ["synth_000000", "synth_000001", "synth_000002"]


def test_none_and_one() -> None:
    assert make(0) == []
    assert len(make(1)) == 1


@cache
def with_sub_agents() -> list[Session]:
    assert PARAMS.sub_agents is not None
    always = Shares(PARAMS.sub_agents.sessions.axes, {"": (0.0, 1.0)})
    params = replace(PARAMS, sub_agents=replace(PARAMS.sub_agents, sessions=always))
    return [session for session in generate(params, 25, 0) if session.sub_agents]


def ids_of(agent: Agent) -> set[int]:
    return {block for turn in agent.turns for block in turn.new_blocks}


def test_sub_agents_share_a_prefix_with_each_other_and_none_with_the_main_agent() -> None:
    compared = 0
    for session in with_sub_agents():
        first, *others = (next(agent.prompts()) for agent in session.sub_agents)
        assert all(common_blocks(first, other) > 0 for other in others)
        assert not any(ids_of(session.main) & ids_of(sub) for sub in session.sub_agents)
        compared += len(others)
    assert compared > 20


def test_the_main_agent_waits_for_completed_sub_agents() -> None:
    waited = 0
    for session in with_sub_agents():
        for sub in session.sub_agents:
            assert sub.spawn_turn is not None
            later = session.main.turns[sub.spawn_turn + 1 :]
            if sub.about.status == "completed" and later:
                assert later[0].time_s >= sub.turns[-1].end_s - 0.01
                waited += 1
    assert waited > 20
