"""User cost, revenue and profit. The definitions are those of the published comparison: docs/economics.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flashstate.economics.prices import Prices
from flashstate.economics.serving import RateError, Rates, Serving

_MILLION: Final = 1e6
_MINUTES: Final = 60
"""In an hour."""


@dataclass(frozen=True, slots=True)
class Earnings:
    """One engine's money, in dollars an hour: what users pay for its tokens, and the rent of its GPUs."""

    input_revenue: float
    output_revenue: float
    gpu_cost: float
    gpus: int

    @property
    def revenue(self) -> float:
        """Of prompt and output tokens, dollars an engine-hour."""
        return self.input_revenue + self.output_revenue

    @property
    def profit(self) -> float:
        """Revenue less rent, dollars an engine-hour; negative for a loss."""
        return self.revenue - self.gpu_cost

    @property
    def revenue_per_gpu_hour(self) -> float:
        """Dollars. Also the rent at which nothing is earned."""
        return self.revenue / self.gpus

    @property
    def profit_per_gpu_hour(self) -> float:
        """Dollars; negative for a loss."""
        return self.profit / self.gpus


def user_cost_per_1m_input(prices: Prices, hit_rate: float) -> float:
    """What users pay for 1M prompt tokens, in dollars, when the share `hit_rate` (0 to 1) of them is cached."""
    return prices.input * (1 - hit_rate) + prices.cached_input * hit_rate


def earnings(prices: Prices, hit_rate: float, rates: Rates) -> Earnings:
    """What an engine earns an hour at these rates, all day: no idle time, no staff, no other cost than GPUs."""
    prompt, output = (
        _MINUTES * tokens / _MILLION
        for tokens in (rates.prompt_tokens_per_minute, rates.output_tokens_per_minute)
    )
    return Earnings(
        prompt * user_cost_per_1m_input(prices, hit_rate),
        output * prices.output,
        prices.gpu_hour * rates.gpus,
        rates.gpus,
    )


def profit_per_gpu_hour(
    prices: Prices,
    hit_rate: float,
    prompt_tokens_per_minute: float,
    output_tokens_per_minute: float,
    gpus: int,
) -> float | None:
    """Dollars, at measured rates of one engine of so many GPUs; None at rates that no engine has.

    `hit_rate`: 0 to 1; what a server's own counts put above 1 is 1.
    """
    try:
        rates = Rates(prompt_tokens_per_minute, output_tokens_per_minute, gpus)
    except RateError:  # of requests that took no time at all
        return None
    return earnings(prices, min(hit_rate, 1.0), rates).profit_per_gpu_hour


@dataclass(frozen=True, slots=True)
class Account:
    """The money of one server. `earnings`: None where its throughput is not known."""

    serving: Serving
    user_cost_per_1m_input: float
    earnings: Earnings | None


def account(prices: Prices, serving: Serving) -> Account:
    """All that these prices make of a server's rates."""
    cost = user_cost_per_1m_input(prices, serving.hit_rate)
    rates = serving.rates
    return Account(serving, cost, None if rates is None else earnings(prices, serving.hit_rate, rates))
