from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from flashstate.traces.blocks import common_blocks
from flashstate.traces.lineage import Kept, in_time_order, lineage
from flashstate.traces.session import BLOCK_TOKENS, Session
from tests.traces.made import make_session, sessions


@given(sessions())
def test_origins_are_the_longest_that_there_are(session: Session) -> None:
    found = lineage(session)
    prompts = [list(agent.prompts()) for agent in session.agents]
    order = sorted(
        (turn.time_s, a, t) for a, agent in enumerate(session.agents) for t, turn in enumerate(agent.turns)
    )
    for place, (_, a, t) in enumerate(order):
        shared = {(b, u): common_blocks(prompts[a][t], prompts[b][u]) for _, b, u in order[:place]}
        most = max(shared.values(), default=0)
        kept = found[a][t]
        if kept is None:
            assert most == 0
            continue
        assert kept.blocks == shared[kept.agent, kept.turn] == most
        before = session.agents[kept.agent].turns[kept.turn]
        if kept.is_exact:
            assert (kept.agent, kept.turn, kept.blocks) == (a, t - 1, before.block_count)
            assert kept.tokens == before.prompt_tokens + before.output_tokens
            assert session.agents[a].turns[t].prompt_tokens >= kept.tokens
        else:
            assert kept.tokens in (kept.blocks * BLOCK_TOKENS, before.prompt_tokens + before.output_tokens)


def test_a_prompt_that_goes_on_has_the_output_exactly() -> None:
    session = make_session("s", [(1, 2, 3), (1, 2, 3, 4, 5), (1, 2, 3, 9), (1, 2, 3, 4, 7, 8)])
    assert lineage(session) == (
        (
            None,
            Kept(0, 0, blocks=3, tokens=3 * 64 + 5),
            Kept(0, 1, blocks=3, tokens=3 * 64),
            Kept(0, 1, blocks=4, tokens=4 * 64),  # further back than the previous prompt
        ),
    )


def test_a_prompt_too_short_for_the_output_has_whole_blocks() -> None:
    session = make_session("s", [(1, 2, 3), (1, 2, 3, 4)], output_tokens=100)
    assert lineage(session)[0][1] == Kept(0, 0, blocks=3, tokens=3 * 64)


def test_a_clock_that_goes_back_does_not_turn_origins_round() -> None:
    session = make_session("s", [(1, 2), (1, 2, 3), (1, 2, 3, 4)])
    turns = tuple(replace(turn, time_s=100.0 - 10 * t) for t, turn in enumerate(session.main.turns))
    back = replace(session, main=replace(session.main, turns=turns))
    assert in_time_order(back) == [(0, 0), (0, 1), (0, 2)]
    assert lineage(back) == lineage(session)
