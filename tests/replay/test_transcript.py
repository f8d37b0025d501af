from __future__ import annotations

import numpy as np

from flashstate.replay.plan import Play, Step
from flashstate.replay.transcript import Transcript

IDS = range(16, 2048)
FIRST = Step("main", 0, "first", prompt_tokens=20, output_tokens=4)
NEXT = Step(
    "main", 1, "extends", prompt_tokens=30, output_tokens=4, after=FIRST.key, base=FIRST.key, keep_tokens=24
)
BRANCH = Step(
    "fork", 0, "fork", prompt_tokens=30, output_tokens=4, after=FIRST.key, base=FIRST.key, keep_tokens=23
)
OUTPUT = np.array([7, 7, 7, 8], dtype=np.int32)


def play(number: int = 0, seed: int = 1, block_tokens: float = 0.0) -> Play:
    return Play("p", number, seed, ((FIRST, NEXT), (BRANCH,)), block_tokens)


def test_the_next_prompt_holds_what_was_generated() -> None:
    transcript = Transcript(play(), IDS)
    prompt = transcript.prompt(FIRST)
    transcript.finish(FIRST, prompt, OUTPUT)
    following = transcript.prompt(NEXT)
    assert len(following) == 30
    assert following[:24].tolist() == [*prompt.tolist(), *OUTPUT.tolist()]


def test_a_branch_leaves_exactly_where_it_should() -> None:
    # Whatever the new content happens to be, it differs from how the base went on.
    for last in IDS:
        transcript = Transcript(play(), IDS)
        prompt = transcript.prompt(FIRST)
        transcript.finish(FIRST, prompt, np.array([7, 7, 7, last], dtype=np.int32))
        branch = transcript.prompt(BRANCH)
        assert branch[:23].tolist() == [*prompt.tolist(), 7, 7, 7]
        assert branch[23] != last
        assert set(branch[23:].tolist()) <= set(IDS)


def test_a_prompt_has_its_planned_length_after_a_failed_request() -> None:
    transcript = Transcript(play(), IDS)
    prompt = transcript.prompt(FIRST)
    transcript.finish(FIRST, prompt, OUTPUT[:1])
    following = transcript.prompt(NEXT)
    assert len(following) == 30
    assert following[:21].tolist() == [*prompt.tolist(), 7]


def test_new_tokens_follow_the_seed_and_differ_by_play() -> None:
    def prompt(number: int, seed: int) -> list[int]:
        tokens: list[int] = Transcript(play(number, seed), IDS).prompt(FIRST).tolist()
        return tokens

    assert prompt(0, 1) == prompt(0, 1)
    assert prompt(0, 1) != prompt(0, 2)
    starts = [prompt(number, 1)[0] for number in range(500)]
    assert len(set(starts)) == 500  # no two plays begin alike


def test_the_same_block_has_the_same_tokens_in_every_step_without_a_base() -> None:
    one = Step("a", 0, "first", 12, 1, after=("main", 0), blocks=(5, 6, 7))
    two = Step("b", 0, "first", 11, 1, after=("main", 0), blocks=(5, 6, 8))
    transcript = Transcript(play(block_tokens=3.5), IDS)
    first, second = transcript.prompt(one), transcript.prompt(two)
    assert first[:7].tolist() == second[:7].tolist()  # two blocks of 3.5 tokens
    assert first[7:10].tolist() != second[7:10].tolist()
