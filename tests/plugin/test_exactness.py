"""Follow-up turns resume at the exact token, and answer what a run without any cache would have answered."""

from __future__ import annotations

import pytest

from tests.plugin.engine import Ask, EngineProcess
from tests.plugin.exact import Tokens, assert_exact, difference_from_replay

pytestmark = pytest.mark.engine

BLOCK = 160
"""Tokens; both families' tiny models."""


def test_a_conversation_resumes_each_turn_one_token_before_its_end(
    engine: EngineProcess, fresh: Tokens
) -> None:
    prompt, history, end = fresh(1700), (), 0
    for turn in range(4):
        ask = Ask(f"conversation{turn}", prompt, max_tokens=12 + turn)
        answer = engine.ask(ask)
        assert answer.cached == end
        # Two accounts of how the state came to be: turn after turn, and block after block.
        history += answer.chunks
        assert history == answer.history
        assert difference_from_replay(engine, ask, answer, history) == 0.0
        end = len(prompt) + len(answer.tokens) - 1
        prompt = prompt + answer.tokens + fresh(50 + 100 * turn)


def test_the_comparison_fails_when_states_are_captured_one_token_off(
    engine: EngineProcess, fresh: Tokens
) -> None:
    first = Ask("control0", fresh(700), max_tokens=9)
    engine.call("shift_captures", 1)
    try:
        answer = engine.ask(first)
    finally:
        engine.call("shift_captures", 0)
    end = len(first.tokens) + len(answer.tokens) - 1
    assert sum(answer.history[-1]) == end
    second = Ask("control1", first.tokens + answer.tokens + fresh(30), max_tokens=9)
    wrong = engine.ask(second)
    assert wrong.cached == end - 1
    assert not wrong.segments[0].is_exact
    believed = (*answer.history[:-1], *wrong.chunks)
    difference = difference_from_replay(engine, second, wrong, believed)
    print(f"one token off: {difference:.3f}")
    assert difference > 0.03


def test_four_forks_of_one_state_run_together(engine: EngineProcess, fresh: Tokens) -> None:
    base = Ask("base", fresh(900), max_tokens=10)
    answer = engine.ask(base)
    end = len(base.tokens) + len(answer.tokens) - 1
    conversations = [(base.tokens + answer.tokens, end)] * 4
    for turn in range(2):
        asks = [
            Ask(f"fork{turn}{i}", tokens + fresh(40 + 45 * i), max_tokens=8 + i)
            for i, (tokens, _) in enumerate(conversations)
        ]
        answers = engine.run(*asks)
        assert [answers[ask.name].cached for ask in asks] == [end for _, end in conversations]
        assert_exact(engine, asks, answers, batched=True)
        conversations = [(tokens := ask.tokens + answers[ask.name].tokens, len(tokens) - 1) for ask in asks]


@pytest.mark.parametrize("beside", [-1, 0, 1])
@pytest.mark.parametrize(
    ("blocks", "more"),
    [
        (1, 1),
        (3, 200),
        pytest.param(1, 200, marks=pytest.mark.slow),
        pytest.param(3, 1, marks=pytest.mark.slow),
    ],
)
def test_a_turn_that_ends_beside_a_block_boundary(
    engine: EngineProcess, fresh: Tokens, blocks: int, beside: int, more: int
) -> None:
    """The state's position, total - 1, is a boundary, one before it or one after it."""
    end = blocks * BLOCK + beside
    first = Ask(f"boundary{end}-{more}", fresh(end - 6), max_tokens=7)
    answer = engine.ask(first)
    second = Ask(f"{first.name}next", first.tokens + answer.tokens + fresh(more), max_tokens=5)
    following = engine.ask(second)
    assert following.cached == end
    assert_exact(engine, [second], {second.name: following})


@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_a_prompt_that_ends_beside_a_block_boundary(
    engine: EngineProcess, fresh: Tokens, beside: int
) -> None:
    prompt = fresh(2 * BLOCK + beside)
    first = Ask(f"prompt{beside}", prompt, max_tokens=3)
    answer = engine.ask(first)
    again = Ask(f"prompt{beside}again", prompt + answer.tokens + fresh(20), max_tokens=3)
    same = Ask(f"prompt{beside}same", prompt, max_tokens=3)
    answers = engine.run(again, same)
    assert answers[again.name].cached == len(prompt) + 2
    # What serves the same prompt is the state at the last boundary that leaves a token to compute.
    assert answers[same.name].cached == (len(prompt) - 1) // BLOCK * BLOCK
    assert_exact(engine, [first, again, same], {first.name: answer, **answers}, batched=True)


def test_prompts_below_one_block(engine: EngineProcess, fresh: Tokens) -> None:
    prompt, end = fresh(3), 0
    for turn in range(3):
        ask = Ask(f"short{turn}", prompt, max_tokens=4)
        answer = engine.ask(ask)
        assert answer.cached == end
        assert_exact(engine, [ask], {ask.name: answer})
        end = len(prompt) + len(answer.tokens) - 1
        prompt = prompt + answer.tokens + fresh(2)
