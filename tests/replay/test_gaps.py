from __future__ import annotations

from dataclasses import replace

import pytest

from flashstate.replay.gaps import Gaps, Reading
from flashstate.replay.recorded import Scale, plan_play
from flashstate.traces.session import Agent, Session
from tests.traces.made import make_session, make_turns

BEFORE, TURN = make_turns([[1], [1, 2]], gap_s=30.0, api_s=8.0)


@pytest.mark.parametrize(
    ("reading", "api_scale", "wait_s"),
    [("think-only", 1, 30.0), ("original", 9, 38.0), ("api-scaled", 0.5, 34.0), ("corrected", 1, 22.0)],
)
def test_each_reading(reading: Reading, api_scale: float, wait_s: float) -> None:
    assert Gaps(reading, api_scale).wait_s(TURN, BEFORE) == wait_s


def test_what_is_not_known_counts_as_nothing() -> None:
    turn, before = replace(TURN, api_s=None), replace(BEFORE, api_s=None)
    assert all(
        Gaps(r).wait_s(turn, before) == 30.0 for r in ("think-only", "original", "api-scaled", "corrected")
    )
    assert Gaps("original").wait_s(TURN, None) == 30.0
    assert Gaps("corrected").wait_s(replace(TURN, gap_s=3.0), BEFORE) == 0.0


def test_long_waits_are_cut_before_they_are_scaled() -> None:
    assert Gaps("original").wait_s(replace(TURN, gap_s=299.0), BEFORE) == 300.0
    session = make_session(prompts=([1], [1, 2]), gap_s=1000.0)
    assert [step.gap_s for step in plan_play(session, Scale(time=10)).agents[0]] == [30.0, 30.0]


def test_a_sub_agent_starts_from_the_end_of_the_turn_that_spawned_it() -> None:
    main = make_session(prompts=([1], [1, 2]), api_s=7.0).main
    sub = Agent("sub", 0, make_turns([[5], [5, 6]], gap_s=2.0, api_s=1.0))
    play = plan_play(Session("s", main, (sub,)), Scale(), gaps=Gaps("original"))
    assert [step.gap_s for step in play.agents[1]] == [9.0, 3.0]


def test_what_is_no_reading_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of think-only"):
        Gaps("now")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be 0 or more"):
        Gaps("api-scaled", -1.0)
