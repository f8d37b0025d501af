"""A cache of 40 blocks: preemption, and states given up while others run."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.plugin.engine import Ask, EngineProcess
from tests.plugin.exact import Tokens, assert_right, compare

pytestmark = pytest.mark.engine


def test_preempted_requests_resume_where_they_were(small_engine: EngineProcess, fresh: Tokens) -> None:
    engine = small_engine
    before = engine.call("counters")["preemptions"]
    conversations = [fresh(100 + 9 * i) for i in range(6)]
    done = []
    for turn in range(3):
        asks = [Ask(f"p{turn}-{i}", tokens, max_tokens=60) for i, tokens in enumerate(conversations)]
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
