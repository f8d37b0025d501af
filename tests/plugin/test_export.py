"""The prompt-end state: an identical prompt, a re-rendered answer and concurrent forks resume at len - 1, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flashstate.models.tiny import FAMILIES
from tests.plugin.conftest import kinds
from tests.plugin.engine import Ask, EngineProcess, EngineSpec, running
from tests.plugin.exact import Tokens, difference_from_replay

pytestmark = pytest.mark.engine

BLOCK = 160


@pytest.fixture(scope="module", params=kinds(slow=("gdn-sync", "mamba2-async")))
def exporting(request: pytest.FixtureRequest, models: dict[str, Path]) -> Iterator[EngineProcess]:
    family, is_async = request.param
    settings = {"mamba_prefill_export": True}
    spec = EngineSpec(models[family], FAMILIES[family].block_size, is_async, settings=settings)
    with running(spec) as engine:
        yield engine


def chunks_until(ask: Ask, chunks: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The chunks up to the prompt's last token but one, where its state was exported."""
    return tuple(chunk for chunk in chunks if chunk[0] < len(ask.tokens) - 1)


@pytest.mark.parametrize("length", [40, 2 * BLOCK, 2 * BLOCK + 1, 2 * BLOCK + 2, 1700])
def test_a_prompt_s_end_serves_the_same_prompt_and_another_answer(
    exporting: EngineProcess, fresh: Tokens, length: int
) -> None:
    first = Ask(f"first{length}", fresh(length), max_tokens=7)
    answer = exporting.ask(first)
    assert difference_from_replay(exporting, first, answer, answer.chunks) == 0.0
    exported = chunks_until(first, answer.chunks)
    assert sum(exported[-1]) == length - 1
    same = Ask(f"same{length}", first.tokens, max_tokens=7)
    other = Ask(f"other{length}", first.tokens + fresh(90), max_tokens=7)
    for ask in (same, other):
        resumed = exporting.ask(ask)
        assert resumed.cached == length - 1, ask.name
        assert difference_from_replay(exporting, ask, resumed, (*exported, *resumed.chunks)) == 0.0
    following = Ask(f"next{length}", first.tokens + answer.tokens + fresh(50), max_tokens=5)
    resumed = exporting.ask(following)
    assert resumed.cached == length + len(answer.tokens) - 1
    assert difference_from_replay(exporting, following, resumed, (*answer.chunks, *resumed.chunks)) == 0.0
    exporting.call("check_idle")


def test_forks_resume_from_a_prompt_whose_request_still_runs(exporting: EngineProcess, fresh: Tokens) -> None:
    first = Ask("running", fresh(900), max_tokens=200)
    exporting.call("submit", first)
    exporting.call("step", 8)
    forks = [Ask(f"beside{i}", first.tokens + fresh(30 + 50 * i), max_tokens=6) for i in range(4)]
    for fork in forks:
        exporting.call("submit", fork)
    answers = exporting.call("step", 400)
    exported = chunks_until(first, answers["running"].chunks)
    for ask in forks:
        assert answers[ask.name].cached == len(first.tokens) - 1
        history = (*exported, *answers[ask.name].chunks)
        assert difference_from_replay(exporting, ask, answers[ask.name], history) == 0.0
    assert difference_from_replay(exporting, first, answers["running"], answers["running"].chunks) == 0.0
    exporting.call("check_idle")


def test_a_seeded_request_is_not_cut_at_its_prompt_s_end(exporting: EngineProcess, fresh: Tokens) -> None:
    """vLLM's CPU runner dies where a seeded request's chunk ends before its prompt does."""
    ask = Ask("seeded", fresh(60), max_tokens=4, seed=7)
    answer = exporting.ask(ask)
    assert len(answer.tokens) == 4
    assert answer.chunks[0] == (0, 60)
    exporting.call("check_idle")
