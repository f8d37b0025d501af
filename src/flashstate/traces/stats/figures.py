"""One figure: its value, and how it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

NONE: Final = "-"
_NOISE_DIGITS: Final = 9
"""Recorded times have two decimals; sums of them have noise further behind, which must not decide a rounding."""


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` is None where there is nothing to tell of."""

    value: float | None
    text: str


def number(value: float | None) -> Figure:
    """Two decimals at most below 1,000, none from there on."""
    if value is None:
        return Figure(None, NONE)
    value = round(value, _NOISE_DIGITS)
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}".rstrip("0").rstrip(".")
    return Figure(value, text)


def share(part: float, whole: float, digits: int = 2) -> Figure:
    """A percentage; the value is a share of 1."""
    return Figure(part / whole, f"{part / whole:.{digits}%}") if whole else Figure(None, NONE)


def part_of(part: int, whole: int) -> Figure:
    """A count and what it is of all."""
    return Figure(part, f"{part:,} ({part / whole:.1%})") if whole else Figure(part, f"{part:,}")


def ratio(value: float | None) -> Figure:
    """Three decimals."""
    return Figure(None, NONE) if value is None else Figure(round(value, _NOISE_DIGITS), f"{value:.3f}")


PERCENTILES: Final = {"p10": 10, "p25": 25, "median": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}
SPREAD: Final = ("n", "mean", *PERCENTILES, "max")
"""The figures of a distribution."""


def spread(values: Sequence[float]) -> dict[str, Figure]:
    """The figures of SPREAD; percentiles between two values are interpolated."""
    if not len(values):
        return {name: number(0 if name == "n" else None) for name in SPREAD}
    at = np.asarray(values)
    percentiles = zip(PERCENTILES, np.percentile(at, list(PERCENTILES.values())), strict=True)
    middle = {name: number(float(value)) for name, value in percentiles}
    return {"n": number(len(at)), "mean": number(float(at.mean())), **middle, "max": number(float(at.max()))}


def percentile(values: Sequence[float], percent: float) -> float | None:
    """None where there are no values."""
    return float(np.percentile(np.asarray(values), percent)) if len(values) else None
