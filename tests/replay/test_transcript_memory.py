"""What a play holds while it runs: bounded by its conversations, not by how many requests they took."""

from __future__ import annotations

import numpy as np

from flashstate.replay.recorded import Scale, plan_play
from flashstate.replay.transcript import Transcript
from tests.traces.made import make_session


def test_only_what_a_later_step_goes_back_to_is_remembered() -> None:
    session = make_session(prompts=[range(10 + n) for n in range(50)])
    play = plan_play(session, Scale())
    transcript = Transcript(play, range(16, 2048))
    longest = max(step.total_tokens for step in play.agents[0])
    for step in play.agents[0]:
        transcript.finish(step, transcript.prompt(step), np.full(step.output_tokens, 7, dtype=np.int32))
        assert transcript.held_tokens <= longest
    assert transcript.held_tokens == 0


def test_what_is_gone_back_to_later_is_kept_until_then() -> None:
    session = make_session(prompts=[[1, 2], [1, 2, 3], [9], [1, 2, 3, 4]])
    play = plan_play(session, Scale())
    transcript, said = Transcript(play, range(16, 2048)), {}
    for step in play.agents[0]:
        prompt = transcript.prompt(step)
        transcript.finish(step, prompt, np.full(step.output_tokens, 7, dtype=np.int32))
        said[step.turn] = prompt
    assert said[3][: 3 * 64].tolist() == said[1].tolist()


def test_a_plan_holds_the_labels_of_new_content_only() -> None:
    session = make_session(prompts=[range(1000 + n) for n in range(30)])
    first, *others = plan_play(session, Scale()).agents[0]
    assert len(first.blocks) == 1000
    assert all(len(step.blocks) <= 3 for step in others)


def test_a_bust_changes_the_start_of_every_first_prompt_and_nothing_else() -> None:
    play = plan_play(make_session(prompts=[[1, 2]]), Scale())
    step = play.agents[0][0]
    one, two = (Transcript(play, range(256, 20_000), bust).prompt(step) for bust in (1, 2))
    assert one[1:16].tolist() != two[1:16].tolist()
    assert one[16:].tolist() == two[16:].tolist()
