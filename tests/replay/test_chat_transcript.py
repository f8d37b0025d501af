from __future__ import annotations

from flashstate.replay.chat_transcript import ChatTranscript
from flashstate.replay.client import Message
from flashstate.replay.plan import Play, Step

FIRST = Step("main", 0, "first", prompt_tokens=40, output_tokens=4)
RATE = 2.0
"""Tokens a word."""


def make_next(keep_tokens: int, prompt_tokens: int = 60) -> Step:
    kind = "extends" if keep_tokens == FIRST.total_tokens else "edit"
    return Step(
        "main", 1, kind, prompt_tokens, 4, after=FIRST.key, base=FIRST.key, keep_tokens=keep_tokens
    )  # fmt: skip


def ask(following: Step, bust: int | None = None) -> tuple[list[Message], list[Message]]:
    transcript = ChatTranscript(Play("p", 0, 1, ((FIRST, following),)), RATE, bust)
    first = transcript.messages(FIRST)
    transcript.finish(FIRST, "what was said")
    return first, transcript.messages(following)


def words(message: Message) -> list[str]:
    return message["content"].split()


def test_the_next_messages_hold_what_was_said() -> None:
    first, second = ask(make_next(44))
    assert len(words(first[0])) == 20
    assert second[:2] == [*first, {"role": "assistant", "content": "what was said"}]
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert len(words(second[2])) == 8  # 60 - 44 tokens


def test_an_answer_of_which_only_the_last_token_is_left_off_stays_whole() -> None:
    assert len(ask(make_next(43))[1]) == 3


def test_an_edit_cuts_between_words_and_roles_take_turns() -> None:
    first, second = ask(make_next(20))
    assert [message["role"] for message in second] == ["user"]
    kept = (20 + 1) // 2
    assert words(second[0])[:kept] == words(first[0])[:kept]
    assert words(second[0])[kept:] != words(first[0])[kept:]
    assert len(words(second[0])) == 30


def test_an_edit_inside_an_answer_drops_it() -> None:
    first, second = ask(make_next(41))
    assert [message["role"] for message in second] == ["user"]
    assert words(second[0])[:20] == words(first[0])


def test_a_bust_changes_how_a_play_begins() -> None:
    (one, _), (two, _), (again, _) = ask(make_next(44), 1), ask(make_next(44), 2), ask(make_next(44), 1)
    assert one == again
    assert words(one[0])[:8] != words(two[0])[:8]
    assert words(one[0])[8:] == words(two[0])[8:]
