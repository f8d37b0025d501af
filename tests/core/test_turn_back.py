from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.thread import Thread
from flashstate.core.turn_back import TurnBacks


def make_thread(prompt: int = 1000, end: int = 1300) -> Thread:
    return Thread(0.0, prompt_tokens=prompt, end=end)


def learnt(rollbacks: list[int]) -> TurnBacks:
    turn_backs = TurnBacks()
    for rollback in rollbacks:
        turn_backs.add(make_thread(), rollback)
    turn_backs.publish()
    return turn_backs


def test_the_prior_expects_exact_continuations() -> None:
    assert TurnBacks().goes_on == pytest.approx(0.9)


def test_what_is_cut_is_counted_from_the_prompts_end() -> None:
    # Output of 300 tokens dropped, with the last 100 of the prompt: 400 back from the end.
    turn_backs = learnt([400] * 1000)
    assert turn_backs.goes_on < 0.02
    assert turn_backs.served(50) < 0.02  # a state 50 before the prompt's end lies beyond the cut
    assert turn_backs.served(127) > 0.98  # 100 lies in [64, 128)
    assert 0.3 < turn_backs.served(96) < 0.7  # linear inside a power of two


def test_leaving_inside_the_output_is_apart() -> None:
    turn_backs = learnt([100] * 1000)
    assert turn_backs.goes_on < 0.02
    assert turn_backs.served(-1) == turn_backs.goes_on
    assert turn_backs.served(0) > 0.98


@given(
    st.lists(st.integers(0, 1300), max_size=40),
    st.integers(-100, 10**6),
    st.integers(-100, 10**6),
)
def test_further_back_serves_no_fewer(rollbacks: list[int], a: int, b: int) -> None:
    turn_backs = learnt(rollbacks)
    nearer, further = sorted((a, b))
    assert 0 <= turn_backs.served(nearer) <= turn_backs.served(further) <= 1 + 1e-9


def test_counts_show_only_when_published() -> None:
    turn_backs = TurnBacks()
    before = turn_backs.goes_on
    turn_backs.add(make_thread(), 400)
    assert turn_backs.goes_on == before
