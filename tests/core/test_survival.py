from __future__ import annotations

from math import inf, log, nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.survival import (
    AGES,
    EDGES_S,
    PRIOR_RATES,
    Silences,
    age_bucket,
    lowest,
    reached_at,
    worth,
)

ages = st.floats(0.0, 1e5)


def test_ages_fall_between_their_edges() -> None:
    assert age_bucket(0.0) == 0
    assert age_bucket(1.0) == 1
    assert age_bucket(EDGES_S[-1]) == AGES - 1
    # An age is a difference of clock readings, so an edge may be missed by a rounding error.
    assert age_bucket(EDGES_S[9] - 1e-9) == 10


@given(ages, ages)
def test_older_is_never_in_an_earlier_bucket(a: float, b: float) -> None:
    younger, older = sorted((a, b))
    assert age_bucket(younger) <= age_bucket(older)


def test_rates_are_product_limit() -> None:
    silences = Silences()
    for age, returned in [(0.5, True), (0.5, True), (3.0, True), (3.0, False)]:
        silences.add(age, returned=returned)
    rates = silences.rates(PRIOR_RATES, weight=0.0 + 1e-12)
    assert rates[0] == pytest.approx(2 / 4)
    assert rates[age_bucket(3.0)] == pytest.approx(1 / 1.5)  # who is cut off there counts by half
    assert rates[1] == pytest.approx(0.0)


def test_what_is_rare_leans_on_the_prior() -> None:
    silences = Silences()
    silences.add(0.5, returned=True)
    assert silences.rates(PRIOR_RATES, weight=12.0)[0] == pytest.approx((1 + 12 * PRIOR_RATES[0]) / 13)


@given(st.lists(st.tuples(ages, st.booleans()), max_size=30))
def test_sums_are_sums(seen: list[tuple[float, bool]]) -> None:
    one, two, both = Silences(), Silences(), Silences()
    for number, (age, returned) in enumerate(seen):
        (one if number % 2 else two).add(age, returned=returned)
        both.add(age, returned=returned)
    total = one.plus(two)
    assert total.reached == pytest.approx(both.reached)
    assert total.ended == pytest.approx(both.ended)


def test_a_sure_return_is_worth_one_over_the_wait() -> None:
    rates = [0.0] * AGES
    rates[age_bucket(100.0)] = 1.0
    table = worth(rates)
    low, high = EDGES_S[age_bucket(100.0) - 1], EDGES_S[age_bucket(100.0)]
    assert table[0] == pytest.approx(1 / (low + 0.5 * (high - low)))
    assert table[age_bucket(100.0)] == pytest.approx(1 / (0.5 * (high - low)))
    assert table[age_bucket(100.0) + 1] == 0.0


def test_nearer_to_a_sure_return_is_worth_more() -> None:
    rates = [0.0] * AGES
    rates[age_bucket(100.0)] = 1.0
    before = worth(rates)[: age_bucket(100.0) + 1]
    assert before == sorted(before)


def test_a_constant_rate_is_worth_the_same_at_every_age() -> None:
    per_second = 0.05
    lengths = [high - low for low, high in zip((0.0, *EDGES_S), (*EDGES_S, 2 * EDGES_S[-1]), strict=True)]
    table = worth([1 - 2.718281828459045 ** (-per_second * length) for length in lengths])
    # Within a stretch a return counts in its middle: good for stretches short against the mean wait of 20 s.
    short = age_bucket(20.0)
    assert table[:short] == pytest.approx([per_second] * short, rel=0.06)


def test_the_prior_halves_what_is_silent_each_time_the_age_doubles() -> None:
    four_steps = 1.0
    for rate in PRIOR_RATES[1:5]:
        four_steps *= 1 - rate
    assert four_steps == pytest.approx(0.5, abs=0.01)
    assert log(EDGES_S[4] / EDGES_S[0], 2) == pytest.approx(1.0)


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]), min_size=AGES, max_size=AGES),
    st.integers(0, AGES - 1),
    st.sampled_from([0.0, 0.7, 1.0, 2.5, inf]),
)
def test_the_lowest_holds_until_what_is_lower(table: list[float], age: int, least: float) -> None:
    found, later = lowest(table, age, least)
    floor = min(table[age], least)
    assert found == min(table[age:later]) >= floor
    assert later == AGES or table[later] < floor
    assert lowest(table, age, inf)[0] == table[age]


@given(st.floats(0.0, 1e7), st.floats(0.0, 5e3), st.integers(1, AGES - 1))
def test_an_age_is_announced_before_it_is_reached(since: float, silent: float, more: int) -> None:
    now = since + silent
    age = age_bucket(now - since) + more
    if age < AGES:
        at = reached_at(age, since, now)
        assert now < at <= max(since + EDGES_S[age - 1], nextafter(now, inf))
        # No moment before it, after now, has that age.
        before = nextafter(at, -inf)
        assert before == now or age_bucket(before - since) < age
