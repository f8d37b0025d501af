"""How profit moves with the rent of a GPU and the discount on cached tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flashstate.economics.accounts import earnings, user_cost_per_1m_input
from flashstate.economics.prices import MOST_DOLLARS, Prices
from flashstate.economics.serving import Rates, Serving

_RENTS: Final = (0.5, 0.75, 1.0, 1.25, 1.5)
"""Of the given rent."""
_DISCOUNTS: Final = (0.0, 0.25, 0.5, 0.75, 0.9)
_SAME: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Rates held as they are, prices varied. Both axes ascend and hold the given price.

    `profit_per_gpu_hour[i][j]`: dollars, at `gpu_hours[i]` (dollars) and `discounts[j]` (shares of the input price).
    `user_costs[j]`: dollars per 1M input tokens; no rent is in it.
    """

    gpu_hours: tuple[float, ...]
    discounts: tuple[float, ...]
    profit_per_gpu_hour: tuple[tuple[float, ...], ...]
    user_costs: tuple[float, ...]


def sensitivity(prices: Prices, serving: Serving, rates: Rates) -> Sensitivity:
    """The grid around `prices`."""
    gpu_hours = tuple(sorted({min(prices.gpu_hour * share, MOST_DOLLARS) for share in _RENTS}))
    given = prices.cached_discount
    discounts = tuple(sorted([given, *(share for share in _DISCOUNTS if abs(share - given) > _SAME)]))
    columns = [prices.with_cached_discount(share) for share in discounts]
    profits = tuple(
        tuple(earnings(at.with_gpu_hour(rent), serving.hit_rate, rates).profit_per_gpu_hour for at in columns)
        for rent in gpu_hours
    )
    costs = tuple(user_cost_per_1m_input(at, serving.hit_rate) for at in columns)
    return Sensitivity(gpu_hours, discounts, profits, costs)
