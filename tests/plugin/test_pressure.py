"""A cache of 40 blocks: preemption, and states given up while others run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from flashstate.models.tiny import FAMILIES
from tests.plugin.engine import Ask, EngineProcess, EngineSpec, running
from tests.plugin.exact import Tokens, assert_exact, assert_right, compare

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("turns", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_preempted_requests_resume_where_they_were(
    small_engine: EngineProcess, fresh: Tokens, turns: int
) -> None:
    engine = small_engine
    before = engine.call("counters")["preemptions"]
    conversations = [fresh(100 + 9 * i) for i in range(6)]
    done = []
    for turn in range(turns):
        asks = [Ask(f"p{turns}-{turn}-{i}", tokens, max_tokens=60) for i, tokens in enumerate(conversations)]
        answers = engine.run(*asks)
        done += [(ask, answers[ask.name]) for ask in asks]
        conversations = [ask.tokens + answers[ask.name].tokens + fresh(20) for ask in asks]
    assert all(len(answer.tokens) == 60 for _, answer in done)
    engine.call("check_idle")
    assert engine.call("counters")["preemptions"] > before
    restarts = [pair for _, answer in done for pair in pairwise(answer.segments)]
    assert any(later.resumed == earlier.end for earlier, later in restarts)
    assert engine.call("reset")
    said = assert_right([found for ask, answer in done for found in compare(engine, ask, answer)])
    print(f"{len(restarts)} restarts, {sum(b.resumed == a.end for a, b in restarts)} where they were; {said}")


@pytest.fixture(scope="module")
def tiny_engine(models: dict[str, Path]) -> Iterator[EngineProcess]:
    """An engine whose cache just holds its longest prompt."""
    arguments = {"num_gpu_blocks_override": 22, "max_model_len": 1760}
    with running(EngineSpec(models["gdn"], FAMILIES["gdn"].block_size, arguments=arguments)) as engine:
        yield engine


@pytest.mark.parametrize("tokens", [1100, 1300])
def test_a_turn_that_fits_only_without_its_state_is_served_cold(
    tiny_engine: EngineProcess, tokens: int
) -> None:
    """The state, its copy and the prompt do not fit together: a miss, not a turn that waits for ever."""
    engine, fresh = tiny_engine, Tokens(f"cold{tokens}")
    assert engine.call("reset")
    first = engine.ask(ask := Ask(f"first{tokens}", fresh(tokens), max_tokens=4))
    following = Ask(f"next{tokens}", ask.tokens + first.tokens + fresh(60), max_tokens=4)
    answers = engine.run(following, max_steps=200)
    assert len(answers[following.name].tokens) == 4
    assert_exact(engine, [following], answers, batched=True)
    engine.call("check_idle")
