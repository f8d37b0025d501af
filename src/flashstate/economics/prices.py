"""What tokens sell for and a GPU rents for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import Final

MOST_DOLLARS: Final = 1e6
"""No price is larger; a typing error may be, and products of prices and rates stay finite."""


class PriceError(ValueError):
    """Prices that cannot be used. One line: the value, the limit, the way out."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Dated prices in US dollars: of 1M tokens, and `gpu_hour` of one GPU for an hour.

    `cached_input` is what a prompt token costs that was resumed from a cache, and so at most `input`. `source` is one
    line. Raises PriceError for a price that is negative, not finite or above `MOST_DOLLARS`.
    """

    name: str
    date: date
    source: str
    input: float
    cached_input: float
    output: float
    gpu_hour: float

    def __post_init__(self) -> None:
        for name in ("input", "cached_input", "output", "gpu_hour"):
            value = getattr(self, name)
            if not 0 <= value <= MOST_DOLLARS:  # nor is NaN
                raise PriceError(f"{name} {value:g}: must be from 0 to {MOST_DOLLARS:,.0f} dollars")
        if self.cached_input > self.input:
            raise PriceError(
                f"cached_input {self.cached_input:g}: must be at most input, {self.input:g}; "
                "lower it, or make them equal for no discount"
            )

    @property
    def cached_discount(self) -> float:
        """What a cached prompt token is cheaper by, as a share of `input`; 0 where prompts are free."""
        return 1 - self.cached_input / self.input if self.input else 0.0

    def with_cached_discount(self, share: float) -> Prices:
        """The same prices with another discount, a share from 0 to 1."""
        return replace(self, cached_input=self.input * (1 - share))

    def with_gpu_hour(self, dollars: float) -> Prices:
        """The same prices with another rent."""
        return replace(self, gpu_hour=dollars)
