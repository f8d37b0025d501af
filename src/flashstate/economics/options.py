"""The options of every command that shows money."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashstate.economics.price_file import choose, read_presets, shipped_presets
from flashstate.economics.prices import Prices

PricesOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Price presets in YAML, instead of the shipped ones.")
]
PresetOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of the price presets (default: the first).")
]


def chosen_prices(prices: Path | None, preset: str | None) -> Prices:
    """The prices that the two options ask for. Raises PriceError."""
    return choose(shipped_presets() if prices is None else read_presets(prices), preset)
