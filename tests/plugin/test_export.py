"""States from inside prompts: identical prompts, re-rendered answers, forks and shared prefixes resume exactly.

The replays compute a prompt in two chunks that meet where the state was exported: equal bits mean that the export is
the state of a call that ended there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from flashstate.models.tiny import FAMILIES
from tests.plugin.conftest import EXPORTING, kinds
from tests.plugin.engine import Answer, Ask, EngineProcess, EngineSpec, running
from tests.plugin.exact import Tokens, compare, compared_with_replay
from tests.plugin.lineage import History

pytestmark = pytest.mark.engine

BLOCK = 160
SHARED, PROMPT = 1500, 2200
"""Tokens."""


SLOW = ("gdn-sync", "mamba2-async", "kda-sync")


@pytest.fixture(scope="module", params=kinds(SLOW, EXPORTING))
def exporting(request: pytest.FixtureRequest, models: dict[str, Path]) -> Iterator[EngineProcess]:
    """An engine that exports inside its chunks."""
    family, is_async = request.param
    settings = {"mamba_prefill_export": True}
    spec = EngineSpec(models[family], FAMILIES[family].block_size, is_async, settings=settings)
    with running(spec) as engine:
        assert engine.call("exports_in_chunk")
        yield engine


@pytest.fixture(scope="module")
def exporting_dense(request: pytest.FixtureRequest, models: dict[str, Path]) -> Iterator[EngineProcess]:
    """The same where vLLM keeps a state of its own at every boundary that a chunk stops at."""
    settings = {"mamba_prefill_export": True}
    dense = {"prefix_cache_retention_interval": None}
    family = FAMILIES[request.param]
    with running(
        EngineSpec(models[request.param], family.block_size, settings=settings, arguments=dense)
    ) as engine:
        yield engine


@pytest.fixture(scope="module", params=["gdn"])
def cutting(request: pytest.FixtureRequest, models: dict[str, Path]) -> Iterator[EngineProcess]:
    """An engine that ends a chunk where it wants a state, as where no kernel can export."""
    settings = {"mamba_prefill_export": True, "in_chunk_export": "off"}
    spec = EngineSpec(models[request.param], FAMILIES[request.param].block_size, settings=settings)
    with running(spec) as engine:
        assert not engine.call("exports_in_chunk")
        yield engine


def until(position: int, chunks: History) -> History:
    """The chunks up to `position`, the last one ended there."""
    return tuple((start, min(tokens, position - start)) for start, tokens in chunks if start < position)


def assert_equal(
    engine: EngineProcess, ask: Ask, answer: Answer, before: History = (), *, batched: bool = False
) -> None:
    """`answer` has the bits of a replay that follows the chunks `before` the state, then its own.

    Not in steps shared with other requests: there stock vLLM rounds otherwise too, now and then (BATCHED).
    """
    found = compared_with_replay(engine, ask, answer, (*before, *answer.chunks))
    assert found.difference == 0.0 or (batched and found.is_rounding), found


def check_a_prompt_s_end(engine: EngineProcess, fresh: Tokens, length: int) -> None:
    first = Ask(f"first{length}", fresh(length), max_tokens=7)
    answer = engine.ask(first)
    assert_equal(engine, first, answer)
    exported = until(length - 1, answer.chunks)
    same = Ask(f"same{length}", first.tokens, max_tokens=7)
    other = Ask(f"other{length}", first.tokens + fresh(90), max_tokens=7)
    for ask in (same, other):
        resumed = engine.ask(ask)
        assert resumed.cached == length - 1, ask.name
        assert_equal(engine, ask, resumed, exported)
    following = Ask(f"next{length}", first.tokens + answer.tokens + fresh(50), max_tokens=5)
    resumed = engine.ask(following)
    assert resumed.cached == length + len(answer.tokens) - 1
    assert_equal(engine, following, resumed, answer.chunks)
    engine.call("check_idle")


def lengths(*quick: int, slow: tuple[int, ...]) -> list[ParameterSet]:
    return [
        pytest.param(length, id=str(length), marks=[pytest.mark.slow] if length in slow else [])
        for length in sorted({*quick, *slow})
    ]


@pytest.mark.parametrize(
    "length", lengths(2, 2 * BLOCK, 2 * BLOCK + 1, PROMPT, slow=(3, 40, 2 * BLOCK + 2, 1700))
)
def test_a_prompt_s_end_serves_the_same_prompt_and_another_answer(
    exporting: EngineProcess, fresh: Tokens, length: int
) -> None:
    check_a_prompt_s_end(exporting, fresh, length)


@pytest.mark.parametrize("length", lengths(40, 2 * BLOCK + 1, slow=(2 * BLOCK + 2, 1700)))
def test_so_does_one_where_the_chunk_was_ended(cutting: EngineProcess, fresh: Tokens, length: int) -> None:
    check_a_prompt_s_end(cutting, fresh, length)


def test_no_chunk_is_cut_for_an_export(exporting: EngineProcess, fresh: Tokens) -> None:
    answer = exporting.ask(Ask("whole", fresh(2 * BLOCK + 40), max_tokens=2))
    assert answer.chunks == ((0, 2 * BLOCK + 40), (2 * BLOCK + 40, 1))


@pytest.mark.parametrize("more", [60, 61, 220, 2 * BLOCK + 90])
def test_a_warm_turn_is_computed_in_one_chunk(exporting: EngineProcess, fresh: Tokens, more: int) -> None:
    """Also over the ends of blocks: 700 tokens and 6 end 114 tokens before one."""
    first = Ask(f"cold{more}", fresh(700), max_tokens=7)
    answer = exporting.ask(first)
    end = len(first.tokens) + len(answer.tokens) - 1
    warm = Ask(f"warm{more}", first.tokens + answer.tokens + fresh(more), max_tokens=7)
    resumed = exporting.ask(warm)
    assert resumed.cached == end
    assert resumed.chunks[0] == (end, more + 1)
    assert_equal(exporting, warm, resumed, answer.chunks)
    exporting.call("check_idle")


@pytest.mark.parametrize("exporting_dense", ["gdn", "mamba2"], indirect=True)
def test_a_block_that_a_chunk_runs_past_is_not_taken_for_its_boundary(
    exporting_dense: EngineProcess, fresh: Tokens
) -> None:
    """vLLM keeps every boundary here: what it finds where no state stands must be none."""
    engine = exporting_dense
    for block in (5, 6, 7):
        first = Ask(f"cold{block}", fresh(700), max_tokens=7)
        answer = engine.ask(first)
        end = len(first.tokens) + len(answer.tokens) - 1
        warm = Ask(f"warm{block}", first.tokens + answer.tokens + fresh(500), max_tokens=2)
        assert engine.ask(warm).chunks[0] == (end, 501)
        follows = Ask(f"follows{block}", warm.tokens[: block * BLOCK + 30], max_tokens=7)
        resumed = engine.ask(follows)
        assert resumed.cached == end
        assert_equal(engine, follows, resumed, answer.chunks)
    engine.call("check_idle")


def test_the_third_prompt_resumes_exactly_where_the_first_two_parted(
    exporting: EngineProcess, fresh: Tokens
) -> None:
    shared = fresh(SHARED)
    asks = [Ask(f"sharing{i}", shared + fresh(PROMPT - SHARED)) for i in range(3)]
    answers = [exporting.ask(ask) for ask in asks]
    assert [answer.cached for answer in answers] == [0, 0, SHARED]
    for ask, answer in zip(asks[:2], answers[:2], strict=True):
        assert_equal(exporting, ask, answer)
    assert_equal(exporting, asks[2], answers[2], until(SHARED, answers[1].chunks))
    exporting.call("check_idle")


def test_of_prompts_that_come_together_the_first_leaves_a_state_where_the_others_part(
    exporting: EngineProcess, fresh: Tokens
) -> None:
    shared = fresh(SHARED)
    asks = [Ask(f"together{i}", shared + fresh(PROMPT - SHARED)) for i in range(3)]
    stranger = Ask("stranger", fresh(900))
    answers = exporting.run(*asks, stranger)
    assert [answers[ask.name].cached for ask in asks] == [0, SHARED, SHARED]
    exported = until(SHARED, answers[asks[0].name].chunks)
    for ask in (*asks, stranger):
        answer = answers[ask.name]
        assert_equal(exporting, ask, answer, exported if answer.cached else (), batched=True)
    exporting.call("check_idle")


def test_identical_prompts_that_come_together_are_computed_once(
    exporting: EngineProcess, fresh: Tokens
) -> None:
    prompt = fresh(700)
    asks = [Ask(f"twin{i}", prompt, max_tokens=4) for i in range(3)]
    answers = exporting.run(*asks)
    assert [answers[ask.name].cached for ask in asks] == [0, 699, 699]
    exporting.call("check_idle")


def test_a_junction_just_after_a_chunk_s_start_is_kept(exporting: EngineProcess, fresh: Tokens) -> None:
    shared = fresh(12 * BLOCK + 40)
    asks = [Ask(f"after{i}", shared + fresh(300), max_tokens=3) for i in range(2)]
    answers = exporting.run(*asks)
    assert answers[asks[0].name].chunks[1][0] == 12 * BLOCK
    assert [answers[ask.name].cached for ask in asks] == [0, len(shared)]
    exporting.call("check_idle")


def test_a_sibling_does_not_wait_for_one_that_is_gone(exporting: EngineProcess, fresh: Tokens) -> None:
    shared = fresh(3000)
    first, second = (Ask(f"sibling{i}", shared + fresh(200), max_tokens=3) for i in range(2))
    exporting.call("submit", first)
    exporting.call("step", 1)
    exporting.call("submit", second)
    exporting.call("abort", first.name)
    answer = exporting.call("step", 50)[second.name]
    assert answer.finished
    exporting.call("check_idle")


def test_forks_resume_from_a_prompt_whose_request_still_runs(exporting: EngineProcess, fresh: Tokens) -> None:
    first = Ask("running", fresh(900), max_tokens=200)
    exporting.call("submit", first)
    exporting.call("step", 8)
    forks = [Ask(f"beside{i}", first.tokens + fresh(30 + 50 * i), max_tokens=6) for i in range(4)]
    for fork in forks:
        exporting.call("submit", fork)
    answers = exporting.call("step", 400)
    exported = until(len(first.tokens) - 1, answers["running"].chunks)
    for ask in forks:
        assert answers[ask.name].cached == len(first.tokens) - 1
        assert_equal(exporting, ask, answers[ask.name], exported, batched=True)
    assert_equal(exporting, first, answers["running"], batched=True)
    exporting.call("check_idle")


def test_states_one_token_off_are_told_from_rounding_in_shared_steps(
    exporting: EngineProcess, fresh: Tokens
) -> None:
    """A negative control of `is_rounding`, in each family; both where the history is believed and where it is lost."""
    firsts = [Ask(f"off{i}", fresh(40 + 15 * i), max_tokens=9) for i in range(4)]
    exporting.call("shift_captures", 1)
    try:
        answers = exporting.run(*firsts)
    finally:
        exporting.call("shift_captures", 0)
    asks = [Ask(f"{ask.name}next", ask.tokens + answers[ask.name].tokens + fresh(40)) for ask in firsts]
    wrong = exporting.run(*asks)
    for first, ask in zip(firsts, asks, strict=True):
        lost = wrong[ask.name]
        (segment,) = lost.segments
        assert lost.cached == len(first.tokens) + len(answers[first.name].tokens) - 2
        assert not segment.is_exact
        history = (*until(lost.cached, answers[first.name].chunks), *lost.chunks)
        believed = replace(lost, segments=(replace(segment, history=history),))
        for answer in (believed, lost):
            (found,) = compare(exporting, ask, answer)
            print(
                f"{found.family}: spread {found.spread:.3f}, {found.typical:.3f}, any {found.difference:.3f}"
            )
            assert found.is_moved, found
            assert not found.is_rounding, found
    exporting.call("check_idle")


def test_a_client_names_a_position(exporting: EngineProcess, fresh: Tokens) -> None:
    system = fresh(700)
    named = Ask("named", system + fresh(500), extra={"flashstate_checkpoints": [700]})
    answer = exporting.ask(named)
    following = Ask("follows", system + fresh(300))
    resumed = exporting.ask(following)
    assert resumed.cached == 700
    assert_equal(exporting, following, resumed, until(700, answer.chunks))
    exporting.call("check_idle")


@pytest.mark.parametrize(
    "extra",
    [
        {"flashstate_checkpoints": "soon"},
        {"flashstate_checkpoints": [True, -5, 10**9, None]},
        {"flashstate_checkpoints": list(range(1, 100))},
        {"flashstate_session_ends": [1]},
    ],
)
def test_what_a_client_says_wrongly_is_ignored(
    exporting: EngineProcess, fresh: Tokens, extra: dict[str, object]
) -> None:
    answer = exporting.ask(Ask(f"wrong{extra}", fresh(200), max_tokens=3, extra=extra))
    assert answer.finished
    exporting.call("check_idle")


def test_a_session_that_ends_leaves_nothing_behind(exporting: EngineProcess, fresh: Tokens) -> None:
    other = Ask("stays", fresh(300), max_tokens=3)
    exporting.ask(other)
    before = exporting.call("positions")
    prompt = fresh(600)
    for turn in range(3):
        last = {"flashstate_session_ends": True} if turn == 2 else {}
        answer = exporting.ask(Ask(f"session{turn}", prompt, max_tokens=4, extra=last))
        prompt = prompt + answer.tokens + fresh(40)
    assert exporting.call("positions") == before
    assert exporting.ask(Ask("again", other.tokens, max_tokens=3)).cached == len(other.tokens) - 1
    exporting.call("check_idle")


def test_a_session_that_ends_leaves_what_others_go_on_from(exporting: EngineProcess, fresh: Tokens) -> None:
    shared = fresh(500)
    exporting.ask(Ask("trunk", shared, max_tokens=2))
    exporting.ask(Ask("branch1", shared + fresh(200), max_tokens=2))
    exporting.ask(Ask("branch2", shared + fresh(200), max_tokens=2, extra={"flashstate_session_ends": True}))
    assert exporting.ask(Ask("branch3", shared + fresh(200), max_tokens=2)).cached == len(shared) - 1
    exporting.call("check_idle")


def test_a_seeded_request_exports_inside_its_chunk_too(exporting: EngineProcess, fresh: Tokens) -> None:
    ask = Ask("seeded", fresh(60), max_tokens=4, seed=7)
    answer = exporting.ask(ask)
    assert answer.chunks[0] == (0, 60)
    assert exporting.ask(Ask("seeded again", ask.tokens, max_tokens=4, seed=7)).cached == 59
    exporting.call("check_idle")


def test_a_seeded_request_is_not_cut_at_its_prompt_s_end(cutting: EngineProcess, fresh: Tokens) -> None:
    """vLLM's CPU runner dies where a seeded request's chunk ends before its prompt does."""
    ask = Ask("seeded", fresh(60), max_tokens=4, seed=7)
    answer = cutting.ask(ask)
    assert len(answer.tokens) == 4
    assert answer.chunks[0] == (0, 60)
    cutting.call("check_idle")
