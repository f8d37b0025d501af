"""Every way a request can end or begin: the right count resumed, exact answers, no block lost."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import kinds
from tests.plugin.engine import Answer, Ask, EngineProcess
from tests.plugin.exact import Tokens, assert_exact, assert_right, compare

# Each family and each schedule once; test_exactness.py has all four by default.
KINDS = kinds(slow=("gdn-sync", "mamba2-async"))
pytestmark = [pytest.mark.engine, pytest.mark.parametrize("shared_engine", KINDS, indirect=True)]

BLOCK = 160


def boundary(tokens: int) -> int:
    """The last block boundary that leaves one token of a prompt to compute."""
    return (tokens - 1) // BLOCK * BLOCK


def stopped(engine: EngineProcess, fresh: Tokens) -> tuple[Ask, Answer]:
    """A request that ended at a stop token."""
    stop = None
    while stop is None:
        prompt = fresh(400)
        free = engine.ask(Ask("free", prompt, max_tokens=8, salt="a"))
        stop = next((t for i, t in enumerate(free.tokens) if i >= 3 and t not in free.tokens[:i]), None)
    ask = Ask("stopped", prompt, max_tokens=8, stop_token_ids=(stop,), salt="b")
    answer = engine.ask(ask)
    assert answer.tokens == free.tokens[: free.tokens.index(stop) + 1]
    return ask, answer


def test_stop_token(engine: EngineProcess, fresh: Tokens, is_async: bool) -> None:
    first, answer = stopped(engine, fresh)
    assert answer.cached == 0
    total = len(first.tokens) + len(answer.tokens)
    ask = Ask("after-stop", first.tokens + answer.tokens + fresh(70), salt="b")
    following = engine.ask(ask)
    # Under async scheduling the next step, which reads the stop token, had been sent out already.
    assert following.cached == (total if is_async else total - 1)
    assert_exact(engine, [first, ask], {first.name: answer, ask.name: following})


def test_stop_token_that_the_client_drops(engine: EngineProcess, fresh: Tokens, is_async: bool) -> None:
    first, answer = stopped(engine, fresh)
    kept = first.tokens + answer.tokens[:-1]
    ask = Ask("after-drop", kept + fresh(70), salt="b")
    following = engine.ask(ask)
    # The async state holds the dropped token, so the last boundary in the prompt is the best there is.
    assert following.cached == (boundary(len(first.tokens)) if is_async else len(kept))
    assert_exact(engine, [ask], {ask.name: following})


def test_one_token(engine: EngineProcess, fresh: Tokens) -> None:
    first = Ask("one", fresh(333), max_tokens=1)
    answer = engine.ask(first)
    ask = Ask("one-more", first.tokens + answer.tokens + fresh(1), max_tokens=1)
    following = engine.ask(ask)
    assert following.cached == len(first.tokens)
    assert_exact(engine, [ask], {ask.name: following})


def test_abort_in_prefill(engine: EngineProcess, fresh: Tokens) -> None:
    ask = Ask("prefill", fresh(7000), max_tokens=4)
    assert engine.run(ask, max_steps=1) == {}
    engine.call("abort", ask.name)
    engine.call("settle")
    (segment,) = engine.call("segments", ask.name)
    assert 0 < segment.end < len(ask.tokens) - 1
    again = Ask("prefill-again", ask.tokens, max_tokens=4)
    answer = engine.ask(again)
    assert answer.cached == segment.end
    assert answer.history[: len(segment.history)] == segment.history
    assert_exact(engine, [again], {again.name: answer})


def test_abort_in_decode(engine: EngineProcess, fresh: Tokens, is_async: bool) -> None:
    first = Ask("decode", fresh(500), max_tokens=50, abort_after=5)
    answer = engine.ask(first)
    total = len(first.tokens) + len(answer.tokens)
    assert 5 <= len(answer.tokens) < 10
    ask = Ask("decode-next", first.tokens + answer.tokens + fresh(30))
    following = engine.ask(ask)
    assert following.cached == (total if is_async else total - 1)
    assert_exact(engine, [ask], {ask.name: following})


def test_abort_before_the_first_step(engine: EngineProcess, fresh: Tokens) -> None:
    ask = Ask("never", fresh(300))
    engine.call("submit", ask)
    engine.call("abort", ask.name)
    engine.call("settle")
    assert engine.call("segments", ask.name) == ()


def test_same_prompt_again(engine: EngineProcess, fresh: Tokens) -> None:
    prompt = fresh(700)
    asks = [Ask(f"same{i}", prompt, max_tokens=6) for i in range(3)]
    answers = {ask.name: engine.ask(ask) for ask in asks}
    assert [answers[ask.name].cached for ask in asks] == [0, boundary(700), boundary(700)]
    assert_exact(engine, asks, answers, batched=True)


def test_a_prompt_and_then_the_same_with_a_suffix(engine: EngineProcess, fresh: Tokens) -> None:
    first = Ask("whole", fresh(650), max_tokens=6)
    second = Ask("suffixed", first.tokens + fresh(100), max_tokens=6)
    answers = {ask.name: engine.ask(ask) for ask in (first, second)}
    assert answers[second.name].cached == boundary(650)
    assert_exact(engine, [first, second], answers, batched=True)


def test_a_shared_prefix_before_unlike_prompts(engine: EngineProcess, fresh: Tokens) -> None:
    shared = fresh(1500)
    asks = [Ask(f"shared{i}", shared + fresh(700), max_tokens=3) for i in range(3)]
    answers = {ask.name: engine.ask(ask) for ask in asks}
    # The second finds the junction, and stops there on its way; the third resumes at it.
    assert [answers[ask.name].cached for ask in asks] == [0, 0, 1440]
    assert_exact(engine, asks[:2], answers, batched=True)
    # The third has the state of the second and the KV of the first, who cut the prefix into other chunks.
    assert_right(compare(engine, asks[2], answers[asks[2].name]))


@pytest.mark.parametrize("length", [90, 500])
def test_tenants_never_share(engine: EngineProcess, fresh: Tokens, length: int) -> None:
    prompt = fresh(length)
    for salt in ("one", "two", None):
        first = Ask(f"{salt}{length}", prompt, max_tokens=5, salt=salt)
        answer = engine.ask(first)
        assert answer.cached == 0
        second = Ask(f"{salt}{length}next", prompt + answer.tokens + fresh(20), max_tokens=5, salt=salt)
        following = engine.ask(second)
        assert following.cached == length + 4
        assert_exact(engine, [second], {second.name: following})


def test_identical_prompts_at_once(engine: EngineProcess, fresh: Tokens) -> None:
    prompt = fresh(800)
    asks = [Ask(f"twin{i}", prompt, max_tokens=6) for i in range(4)]
    answers = engine.run(*asks)
    assert_exact(engine, asks, answers, batched=True)
    more = [Ask(f"twin{i}next", prompt + answers[f"twin{i}"].tokens + fresh(25)) for i in range(4)]
    following = engine.run(*more)
    assert [following[ask.name].cached for ask in more] == [len(prompt) + 5] * 4
    for ask in more:
        assert following[ask.name].segments[0].is_exact


def test_reset_when_idle(engine: EngineProcess, fresh: Tokens) -> None:
    first = Ask("before-reset", fresh(600))
    answer = engine.ask(first)
    assert engine.call("positions")
    assert engine.call("reset")
    assert engine.call("positions") == []
    assert engine.call("counters")["resident_blocks"] == 0
    again = engine.ask(Ask("after-reset", first.tokens + answer.tokens + fresh(9)))
    assert again.cached == 0


def test_reset_while_requests_run(engine: EngineProcess, fresh: Tokens) -> None:
    idle = Ask("idle", fresh(300))
    ended = engine.ask(idle)
    asks = [Ask(f"reset{i}", fresh(350 + 60 * i), max_tokens=12) for i in range(3)]
    for ask in asks:
        engine.call("submit", ask)
    engine.call("step", 6)
    # Without being told to, vLLM does not reset under running requests; what it answers, we do.
    assert not engine.call("reset")
    engine.call("step", 1)
    assert engine.call("reset", running=True)
    assert engine.call("positions") == []
    answers = engine.call("step", 200)
    assert sorted(answers) == sorted(ask.name for ask in asks)
    for ask in asks:
        assert len(answers[ask.name].tokens) == 12
        assert [segment.resumed for segment in answers[ask.name].segments] == [0, 0]
    assert_exact(engine, asks, answers, batched=True)
    stale = engine.ask(Ask("stale", idle.tokens + ended.tokens + fresh(5)))
    assert stale.cached == 0
    follow = Ask("fine", asks[0].tokens + answers["reset0"].tokens + fresh(40))
    answer = engine.ask(follow)
    assert answer.cached == len(asks[0].tokens) + 11
    assert_exact(engine, [follow], {follow.name: answer})
