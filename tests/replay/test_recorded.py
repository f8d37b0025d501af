from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.replay.gaps import GAP_CAP_S
from flashstate.replay.plan import Key, Play
from flashstate.replay.recorded import RecordedWorkload, Scale, plan_play
from flashstate.replay.transcript import Tokens, Transcript
from flashstate.traces.session import BLOCK_TOKENS, Session
from tests.traces.made import make_session, sessions

IDS = range(16, 2048)


scales = st.builds(Scale, tokens=st.floats(1, 60), time=st.floats(0.5, 20))


def run(play: Play) -> dict[Key, tuple[Tokens, Tokens]]:
    """Plays it against a server that makes random tokens: prompt and output of each step."""
    transcript, draw, said = Transcript(play, IDS), np.random.default_rng(0), {}
    for step in (step for agent in play.agents for step in agent):
        prompt = transcript.prompt(step)
        output = draw.integers(IDS.start, IDS.stop, step.output_tokens).astype(np.int32)
        transcript.finish(step, prompt, output)
        said[step.key] = prompt, output
    return said


def common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(sessions(), scales)
def test_what_prompts_share_in_the_trace_they_share_in_the_replay(session: Session, scale: Scale) -> None:
    said = run(plan_play(session, scale))
    prompts = {
        (agent.name, n): blocks for agent in session.agents for n, blocks in enumerate(agent.prompts())
    }
    for one in prompts:
        for two in prompts:
            shared = int(common(prompts[one], prompts[two]) * BLOCK_TOKENS / scale.tokens)
            a, b = said[one][0], said[two][0]
            assert a[:shared].tolist() == b[:shared].tolist()


@given(sessions(), scales)
def test_a_prompt_that_goes_on_holds_what_was_generated(session: Session, scale: Scale) -> None:
    said = run(plan_play(session, scale))
    for agent in session.agents:
        prompts = list(agent.prompts())
        for number, (before, turn) in enumerate(zip(agent.turns, agent.turns[1:], strict=False)):
            # (Unless it goes back to what an earlier turn had: the recorded prompt decides.)
            nearest = max(common(earlier, prompts[number + 1]) for earlier in prompts[: number + 1])
            goes_on = 0 < before.block_count == turn.shared_blocks == nearest
            if goes_on and turn.prompt_tokens >= before.prompt_tokens + before.output_tokens:
                whole = np.concatenate(said[agent.name, number])
                prompt = said[agent.name, number + 1][0]
                assert prompt[: len(whole)].tolist() == whole.tolist()
                assert len(prompt) > len(whole)


@given(sessions(), scales)
def test_lengths_and_gaps_are_scaled(session: Session, scale: Scale) -> None:
    play = plan_play(session, scale)
    for agent, steps in zip(session.agents, play.agents, strict=True):
        for number, (turn, step) in enumerate(zip(agent.turns, steps, strict=True)):
            assert step.gap_s == pytest.approx(min(turn.gap_s, GAP_CAP_S) / scale.time)
            assert step.output_tokens == max(1, int(turn.output_tokens / scale.tokens))
            # Never shorter; longer by the few tokens that short outputs and prompts are rounded up by.
            assert 0 <= step.prompt_tokens - int(turn.prompt_tokens / scale.tokens) <= 2 * (number + 1)


@given(sessions(), st.integers(0, 5))
def test_a_play_from_the_middle_starts_with_the_whole_prompt(session: Session, turn: int) -> None:
    first_turn = turn % len(session.main.turns)
    play = plan_play(session, Scale(), first_turn)
    first = play.agents[0][0]
    assert (first.turn, first.base, first.after, first.kind) == (first_turn, None, None, "first")
    assert first.prompt_tokens == max(2, session.main.turns[first_turn].prompt_tokens)
    spawned = {agent[0].agent for agent in play.agents[1:]}
    assert spawned == {
        a.name for a in session.sub_agents if a.spawn_turn is not None and a.spawn_turn >= first_turn
    }
    assert len(run(play)) == sum(map(len, play.agents))


def line(name: str, turns: int) -> Session:
    return make_session(name, [range(10 + n) for n in range(turns)])


def test_sessions_start_in_the_middle_and_go_on_from_the_start() -> None:
    workload = RecordedWorkload(tuple(line(f"t{n}", 40) for n in range(3)), Scale(), sessions=4, seed=5)
    numbers = set()
    for session in range(4):
        first, *rest = islice(workload.plays(session), 4)
        assert 10 <= first.agents[0][0].turn <= 30
        assert all(play.agents[0][0].turn == 0 for play in rest)
        numbers |= {play.number for play in (first, *rest)}
    assert len(numbers) == 16  # every play has tokens of its own
    assert len({next(workload.plays(s)).agents[0][0].turn for s in range(4)}) > 1


def test_the_same_seed_gives_the_same_schedule() -> None:
    def plays(seed: int) -> list[Play]:
        workload = RecordedWorkload(
            tuple(line(f"t{n}", 9) for n in range(4)), Scale(8, 8), sessions=3, seed=seed
        )
        return [play for session in range(3) for play in islice(workload.plays(session), 5)]

    assert plays(1) == plays(1)
    assert plays(1) != plays(2)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_a_scale_that_cannot_be_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="token scale must be a number above 0"):
        Scale(tokens=factor)
    with pytest.raises(ValueError, match="time scale must be a number above 0"):
        Scale(time=factor)
