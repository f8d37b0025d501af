from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.replay.ideal import ComputedPrefixes
from flashstate.replay.plan import Key, Step
from flashstate.replay.synthetic import LEAST_TURNS, Shape, SyntheticWorkload
from flashstate.replay.transcript import Transcript

shapes = st.builds(
    Shape,
    sessions=st.integers(1, 5),
    turns=st.integers(LEAST_TURNS, 12),
    first_prompt=st.just((20, 60)),
    tool_result=st.just((1, 20)),
    output=st.just((1, 6)),
)
seeds = st.integers(0, 2**32 - 1)


def steps(workload: SyntheticWorkload) -> list[Step]:
    return [
        step
        for session in range(workload.sessions)
        for play in workload.plays(session)
        for agent in play.agents
        for step in agent
    ]


@given(shapes, seeds)
def test_has_one_fork_and_one_edit(shape: Shape, seed: int) -> None:
    workload = SyntheticWorkload(shape, seed)
    kinds = Counter(step.kind for step in steps(workload))
    assert (kinds["first"], kinds["fork"], kinds["edit"]) == (shape.sessions, 1, 1)
    assert kinds.total() == workload.requests


@given(shapes, seeds)
def test_the_same_seed_gives_the_same_schedule(shape: Shape, seed: int) -> None:
    once, again = SyntheticWorkload(shape, seed), SyntheticWorkload(shape, seed)
    for session in range(shape.sessions):
        assert list(once.plays(session)) == list(again.plays(session))
    assert steps(once) != steps(SyntheticWorkload(shape, seed + 1))


@given(shapes, seeds)
def test_every_ideal_position_is_the_end_of_a_request(shape: Shape, seed: int) -> None:
    draw = np.random.default_rng(seed)
    computed, ids = ComputedPrefixes(), range(16, 40)  # few ids, so that chance would show
    for session in range(shape.sessions):
        for play in SyntheticWorkload(shape, seed).plays(session):
            transcript, ends = Transcript(play, ids), dict[Key, int]()
            for step in (step for agent in play.agents for step in agent):
                prompt = transcript.prompt(step)
                expected = 0 if step.base is None else ends[step.base]
                assert computed.longest(prompt) == expected
                output = draw.integers(ids.start, ids.stop, step.output_tokens).astype(np.int32)
                computed.add(np.concatenate((prompt, output[:-1])))
                transcript.finish(step, prompt, output)
                ends[step.key] = step.total_tokens - 1


def test_pauses_and_lengths_are_within_the_shape() -> None:
    shape = Shape()
    for step in steps(SyntheticWorkload(shape, 3)):
        assert shape.output[0] <= step.output_tokens <= shape.output[1]
        assert step.kind == "first" or shape.gap_s[0] <= step.gap_s <= shape.gap_s[1]
    assert SyntheticWorkload(shape, 3).most_tokens == max(
        step.total_tokens for step in steps(SyntheticWorkload(shape, 3))
    )


def test_a_shape_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="sessions must be 1 or more, not 0"):
        Shape(sessions=0)
    with pytest.raises(ValueError, match=f"turns must be {LEAST_TURNS} or more, not 3"):
        Shape(turns=3)
