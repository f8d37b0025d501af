from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashstate.traces.blocks import common_blocks
from flashstate.traces.scale import scaled
from flashstate.traces.session import BLOCK_TOKENS, Session
from flashstate.traces.weka import read_weka
from tests.traces.made import SMALL, make_session, sessions


def prompts(session: Session) -> list[array[int]]:
    """Every prompt's blocks, agent after agent."""
    return [blocks for agent in session.agents for blocks in agent.prompts()]


@settings(max_examples=60)
@given(sessions(), st.sampled_from([0.5, 1.0, 1.25, 2.0, 7.0]))
def test_what_was_shared_stays_shared_in_whole_blocks(session: Session, tokens: float) -> None:
    """Of any two prompts of a session, whichever agents' they are; the factors have exact binary fractions."""
    found = scaled(session, tokens, 1.0)
    before, after = prompts(session), prompts(found)
    for i, (recorded, now) in enumerate(zip(before, after, strict=True)):
        for other_recorded, other_now in zip(before[:i], after[:i], strict=True):
            shared = int(common_blocks(recorded, other_recorded) / tokens)
            assert common_blocks(now, other_now) == min(shared, len(now), len(other_now))
    for agent, scaled_agent in zip(session.agents, found.agents, strict=True):
        for turn, scaled_turn in zip(agent.turns, scaled_agent.turns, strict=True):
            assert scaled_turn.prompt_tokens == max(1, int(turn.prompt_tokens / tokens))
            assert scaled_turn.output_tokens == int(turn.output_tokens / tokens)
            assert scaled_turn.block_count == scaled_turn.prompt_tokens // BLOCK_TOKENS


def test_all_times_are_divided_and_nothing_else() -> None:
    session = read_weka(SMALL)
    found = scaled(session, 1.0, 4.0)
    assert found.agents[1].spawn_turn == session.agents[1].spawn_turn
    for agent, quick in zip(session.agents, found.agents, strict=True):
        for turn, quick_turn in zip(agent.turns, quick.turns, strict=True):
            assert (quick_turn.time_s, quick_turn.gap_s) == (turn.time_s / 4, turn.gap_s / 4)
            assert quick_turn.api_s == (None if turn.api_s is None else turn.api_s / 4)
            assert (
                quick_turn.prompt_tokens,
                quick_turn.output_tokens,
                quick_turn.stop,
                quick_turn.model,
            ) == (
                turn.prompt_tokens,
                turn.output_tokens,
                turn.stop,
                turn.model,
            )


def test_a_small_prompt_keeps_a_token() -> None:
    (turn, _) = scaled(make_session(), 1000.0, 1.0).main.turns
    assert (turn.prompt_tokens, turn.output_tokens, turn.block_count) == (1, 0, 0)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_a_factor_that_is_none(factor: float) -> None:
    with pytest.raises(ValueError, match="the time scale must be a number above 0"):
        scaled(make_session(), 1.0, factor)
    with pytest.raises(ValueError, match="the token scale must be a number above 0"):
        scaled(make_session(), factor, 1.0)
