from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from flashstate.replay.edits_workload import EDIT_SHARE, EditsWorkload
from flashstate.replay.math_workload import MathWorkload
from flashstate.replay.plan import Play, Step, Workload
from flashstate.replay.recorded import Scale
from flashstate.replay.transcript import Transcript


def plays(workload: Workload, count: int) -> list[Play]:
    return [play for session in range(workload.sessions) for play in islice(workload.plays(session), count)]


def steps(workload: Workload, count: int) -> list[Step]:
    return [step for play in plays(workload, count) for step in play.agents[0]]


def test_answers_are_as_long_as_published() -> None:
    lengths = [step.output_tokens for step in steps(MathWorkload(100, Scale(), seed=1), 200)]
    assert np.mean(lengths) == pytest.approx(2292, rel=0.05)
    assert max(lengths) == 32_769
    assert min(lengths) >= 1


def test_as_many_requests_are_edits_as_published() -> None:
    found = steps(EditsWorkload(50, Scale(), seed=1), 20)
    share = sum(step.kind == "edit" for step in found) / len(found)
    assert share == pytest.approx(EDIT_SHARE, rel=0.1)


def test_an_edit_keeps_a_part_of_an_earlier_turn_and_changes_the_rest() -> None:
    edits = 0
    for play in plays(EditsWorkload(20, Scale(tokens=50), seed=2), 2):
        transcript, by_key = Transcript(play, range(16, 2048)), {step.key: step for step in play.agents[0]}
        said: dict[int, list[int]] = {}
        for step in play.agents[0]:
            prompt = transcript.prompt(step)
            assert len(prompt) == step.prompt_tokens
            if step.kind == "edit" and step.base is not None:
                edits += 1
                keep, before = step.keep_tokens, said[step.base[1]]
                assert 0 < keep < by_key[step.base].total_tokens
                assert prompt[:keep].tolist() == before[:keep]
                assert prompt[keep] != before[keep]
            output = np.full(step.output_tokens, 7, dtype=np.int32)
            transcript.finish(step, prompt, output)
            said[step.turn] = [*prompt.tolist(), *output.tolist()]
    assert edits > 20


@pytest.mark.parametrize("make", [MathWorkload, EditsWorkload])
@pytest.mark.parametrize("tokens", [1.0, 3000.0])
def test_the_seed_decides_and_the_scale_divides(
    make: type[MathWorkload] | type[EditsWorkload], tokens: float
) -> None:
    workload = make(3, Scale(tokens, time=10), 4)
    found = steps(workload, 5)
    assert found == steps(make(3, Scale(tokens, time=10), 4), 5)
    assert found != steps(make(3, Scale(tokens, time=10), 5), 5) or tokens > 1
    assert max(step.total_tokens for step in found) <= workload.most_tokens
    assert all(step.prompt_tokens >= 2 and step.output_tokens >= 1 for step in found)
    assert all(step.gap_s <= 2.0 for step in found)
    assert len({play.number for play in plays(workload, 5)}) == 15
