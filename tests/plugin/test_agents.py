"""Random operations of agents in a cache of 40 blocks: no wrong state, no lost block, no error."""

from __future__ import annotations

import pytest

from tests.plugin.agents import Agents
from tests.plugin.engine import EngineProcess
from tests.plugin.exact import assert_right, compare

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("operations", [80, pytest.param(300, marks=pytest.mark.slow)])
def test_agents_at_random(small_engine: EngineProcess, operations: int) -> None:
    engine = small_engine
    evicted = sum(engine.call("counters")["evictions"].values())
    agents = Agents(engine, seed=7)
    agents.run(operations)
    counters = engine.call("check_idle")
    assert sum(counters["evictions"].values()) > evicted + operations // 10
    assert engine.call("reset")
    assert len(agents.resumed) > operations // 4
    said = assert_right([found for ask, answer in agents.resumed for found in compare(engine, ask, answer)])
    print(
        f"{dict(agents.operations)}; {len(agents.done)} answers, {len(agents.resumed)} resumed; {said}; {counters}"
    )
