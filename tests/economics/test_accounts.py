from __future__ import annotations

from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.economics.accounts import (
    Earnings,
    account,
    earnings,
    profit_per_gpu_hour,
    user_cost_per_1m_input,
)
from flashstate.economics.price_file import choose, shipped_presets
from flashstate.economics.prices import PriceError, Prices
from flashstate.economics.sensitivity import sensitivity
from flashstate.economics.serving import RateError, Rates, Serving
from tests.economics.make import make_prices

shares = st.floats(0, 1)
amounts = st.floats(0, 100)
tokens = st.floats(0, 1e8)
all_prices = st.tuples(amounts, shares, amounts, amounts).map(
    lambda p: make_prices(input=p[0], cached_input=p[0] * p[1], output=p[2], gpu_hour=p[3])
)
all_rates = st.builds(Rates, tokens, tokens, st.integers(1, 64))

PUBLISHED = [
    (0.87, 4.74e6, 61_700, 0.0456, 5.30),
    (0.30, 1.54e6, 22_000, 0.1140, 2.27),
    (0.06, 1.29e6, 15_400, 0.1428, 2.67),
]
"""Hit rate, prompt tokens a minute and GPU, output tokens a minute and engine; user cost, profit a GPU-hour."""


def make_published(hit_rate: float, prompt_a_gpu: float, output: float) -> Earnings:
    return earnings(choose(shipped_presets(), None), hit_rate, Rates(2 * prompt_a_gpu, output, gpus=2))


@pytest.mark.parametrize(("hit_rate", "prompt_a_gpu", "output", "user_cost", "profit"), PUBLISHED)
def test_published_figures_come_out(
    hit_rate: float, prompt_a_gpu: float, output: float, user_cost: float, profit: float
) -> None:
    assert user_cost_per_1m_input(choose(shipped_presets(), None), hit_rate) == pytest.approx(
        user_cost, abs=1e-9
    )
    found = make_published(hit_rate, prompt_a_gpu, output)
    assert found.profit_per_gpu_hour == pytest.approx(profit, rel=0.02)


def test_published_profit_is_mostly_input() -> None:
    found = make_published(*PUBLISHED[0][:3])
    assert (found.input_revenue, found.revenue) == (
        pytest.approx(25.95, rel=1e-3),
        pytest.approx(27.80, rel=1e-3),
    )


def test_output_counted_a_gpu_would_miss_the_published_profit() -> None:
    """The other reading of "61.7K output tokens a minute": 17% off, so the test above tells them apart."""
    assert make_published(0.87, 4.74e6, 2 * 61_700).profit_per_gpu_hour == pytest.approx(6.22, abs=0.01)


@given(all_prices, shares, shares)
def test_a_higher_hit_rate_never_costs_users_more(prices: Prices, one: float, other: float) -> None:
    low, high = sorted((one, other))
    cheap, dear = user_cost_per_1m_input(prices, high), user_cost_per_1m_input(prices, low)
    assert cheap <= dear + 1e-9
    assert prices.cached_input - 1e-9 <= cheap <= prices.input + 1e-9


@given(all_prices, shares, all_rates, st.integers(1, 8))
def test_revenue_is_linear_in_rates(prices: Prices, hit_rate: float, rates: Rates, times: int) -> None:
    one = earnings(prices, hit_rate, rates)
    many = earnings(
        prices,
        hit_rate,
        Rates(rates.prompt_tokens_per_minute * times, rates.output_tokens_per_minute * times, rates.gpus),
    )
    assert many.input_revenue == pytest.approx(times * one.input_revenue)
    assert many.output_revenue == pytest.approx(times * one.output_revenue)
    assert many.gpu_cost == one.gpu_cost


@given(all_prices, shares, all_rates)
def test_two_engines_earn_as_much_a_gpu_as_one(prices: Prices, hit_rate: float, rates: Rates) -> None:
    one = earnings(prices, hit_rate, rates)
    two = earnings(
        prices,
        hit_rate,
        Rates(2 * rates.prompt_tokens_per_minute, 2 * rates.output_tokens_per_minute, 2 * rates.gpus),
    )
    assert two.profit_per_gpu_hour == pytest.approx(one.profit_per_gpu_hour, abs=1e-6)


@given(all_prices, shares, all_rates)
def test_revenue_a_gpu_hour_is_the_rent_at_which_nothing_is_earned(
    prices: Prices, hit_rate: float, rates: Rates
) -> None:
    rent = min(earnings(prices, hit_rate, rates).revenue_per_gpu_hour, 1e6)
    found = earnings(prices.with_gpu_hour(rent), hit_rate, rates)
    if rent < 1e6:
        assert found.profit_per_gpu_hour == pytest.approx(0, abs=1e-6)


@given(all_prices, shares, all_rates)
def test_the_grid_holds_the_given_prices_and_falls_along_both_axes(
    prices: Prices, hit_rate: float, rates: Rates
) -> None:
    found = sensitivity(prices, Serving("made", hit_rate, rates), rates)
    assert list(found.gpu_hours) == sorted(found.gpu_hours) and list(found.discounts) == sorted(
        found.discounts
    )
    row = found.gpu_hours.index(prices.gpu_hour)
    column = found.discounts.index(prices.cached_discount)
    profit = earnings(prices, hit_rate, rates).profit_per_gpu_hour
    assert found.profit_per_gpu_hour[row][column] == pytest.approx(profit, abs=1e-6)
    assert found.user_costs[column] == pytest.approx(user_cost_per_1m_input(prices, hit_rate))
    for profits in (*found.profit_per_gpu_hour, *zip(*found.profit_per_gpu_hour, strict=True)):
        assert all(after <= before + 1e-6 for before, after in pairwise(profits))


def test_without_rates_there_is_a_user_cost_and_nothing_else() -> None:
    found = account(make_prices(), Serving("made", 0.5, None))
    assert (found.user_cost_per_1m_input, found.earnings) == (pytest.approx(0.09), None)


@pytest.mark.parametrize("bad", [-0.1, nan, inf, 1e7])
@pytest.mark.parametrize("name", ["input", "cached_input", "output", "gpu_hour"])
def test_no_such_price(name: str, bad: float) -> None:
    with pytest.raises(
        PriceError, match=rf"^{name} {bad:g}: must be from 0 to 1,000,000 dollars$".replace("+", r"\+")
    ):
        make_prices(**{name: bad})


def test_a_cached_token_is_not_dearer() -> None:
    with pytest.raises(PriceError, match=r"^cached_input 0.2: must be at most input, 0.15; lower it"):
        make_prices(cached_input=0.2)


def test_profit_at_rates_that_were_measured() -> None:
    prices = make_prices()
    whole = account(prices, Serving("made", 1.0, Rates(1000, 100, 2))).earnings
    assert whole is not None
    assert profit_per_gpu_hour(prices, 1.25, 1000, 100, 2) == whole.profit_per_gpu_hour
    assert profit_per_gpu_hour(prices, 0.5, inf, 100, 2) is None


@pytest.mark.parametrize("bad", [-1.0, nan, inf])
def test_no_such_rates(bad: float) -> None:
    for values in ((bad, 1.0), (1.0, bad)):
        with pytest.raises(RateError, match=f"tokens per minute {bad:g}: must be from 0"):
            Rates(*values)
    with pytest.raises(RateError, match=f"hit rate {bad:g}: must be a share"):
        Serving("made", bad, None)
    with pytest.raises(RateError, match="gpus 0: must be from 1"):
        Rates(1, 1, 0)
