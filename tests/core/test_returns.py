from __future__ import annotations

from flashstate.core.returns import _MOST_KINDS, ReturnRates
from flashstate.core.thread import Thread


def make_silent(rates: ReturnRates, now: float, hint: object, *, left: bool = False) -> Thread:
    thread = Thread(now, hint=hint, is_left=left)  # type: ignore[arg-type]
    rates.begin(thread)
    return thread


def learn(rates: ReturnRates, hint: object, waits: list[float | None]) -> None:
    """Threads that come back after so long, or are still silent an hour later."""
    for wait in waits:
        thread = make_silent(rates, 0.0, hint)
        if wait is not None:
            rates.finish(thread, wait)


def test_a_tool_call_is_worth_more_than_an_answer() -> None:
    rates = ReturnRates()
    learn(rates, "tool_use", [5.0] * 90 + [60.0] * 10)
    learn(rates, "end_turn", [200.0] * 50 + [None] * 50)
    rates.publish(3600.0)
    fresh_call = rates.worth((False, "tool_use"), 0.0)
    assert fresh_call > 5 * rates.worth((False, "end_turn"), 0.0)
    # But one that has not come back for long is worth less than it was.
    assert rates.worth((False, "tool_use"), 90.0) < fresh_call / 5


def test_those_still_silent_count() -> None:
    known, unknown = ReturnRates(), ReturnRates()
    learn(known, "x", [10.0] * 20)
    learn(unknown, "x", [10.0] * 20 + [None] * 80)
    known.publish(3600.0)
    unknown.publish(3600.0)
    assert unknown.worth((False, "x"), 0.0) < known.worth((False, "x"), 0.0) / 3


def test_a_path_that_was_left_is_another_kind() -> None:
    rates = ReturnRates()
    learn(rates, "x", [10.0] * 50)
    for _ in range(50):
        make_silent(rates, 0.0, "x", left=True)
    rates.publish(3600.0)
    assert rates.worth((True, "x"), 20.0) < rates.worth((False, "x"), 5.0) / 10


def test_what_was_never_seen_leans_on_what_is_broader() -> None:
    rates = ReturnRates()
    learn(rates, "x", [10.0] * 50)
    rates.publish(100.0)
    assert rates.worth((False, "new"), 0.0) == rates.worth((False,), 0.0)


def test_a_return_counts_once() -> None:
    rates = ReturnRates()
    thread = make_silent(rates, 0.0, "x")
    rates.finish(thread, 5.0)
    before = rates._closed[(False, "x")].ended[:]
    rates.finish(thread, 9.0)
    assert rates._closed[(False, "x")].ended == before


def test_thousands_of_hints_take_bounded_room() -> None:
    rates = ReturnRates()
    learn(rates, "common", [5.0] * 100)
    for number in range(2000):
        learn(rates, number, [5.0])
        if number % 100 == 0:
            rates.publish(float(number))
    rates.publish(2000.0)
    assert len(rates._closed) <= _MOST_KINDS + 2
    assert len(rates._tables) <= _MOST_KINDS + 4
    assert (False, "common") in rates._closed
    assert sum(silences.ended[age] for silences in rates._closed.values() for age in range(40)) == 2100


def test_the_silent_for_ever_are_let_go() -> None:
    rates = ReturnRates()
    learn(rates, "x", [None] * 10)
    rates.publish(1e6)
    assert not rates._open
    assert sum(rates._closed[(False, "x")].ended) == 0
