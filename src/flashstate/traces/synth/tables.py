"""Small tables of what was observed: quantiles and shares, a cell for each circumstance that matters.

A grid has an axis for each circumstance, cut into buckets. A cell that saw too little is left out, and whoever
asks for it gets the next wider one, where the last axes do not count.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

Axes = tuple[tuple[float, ...], ...]
"""For each axis the bounds between its buckets; a value on a bound belongs above it."""

LEVELS: Final = (0.0002, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9998)
FEW_LEVELS: Final = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
"""Where there are too few samples to tell the tails."""
_FEW: Final = 100
_LEAST_SAMPLES: Final = 40
"""Of a cell that stands for itself."""
_DIGITS: Final = 3
"""Significant digits kept: more would only make the file longer."""
_TAILS: Final = (0.05, 0.95)
_FAR: Final = 4.0
"""A cell stands for itself if it differs by this many deviations."""

Values = NDArray[np.float64]
Sample = tuple[tuple[float, ...], float]
"""Where on the axes, and the value seen there."""

ALONE: Final[Axes] = ()
"""No axes: one cell."""


def _place(level: float) -> float:
    """A level on the scale on which tables are read: its log odds, where heavy tails are nearly straight."""
    return math.log(level / (1 - level))


_PLACES: Final = tuple(map(_place, LEVELS))
_FEW_PLACES: Final = tuple(map(_place, FEW_LEVELS))


def _key(buckets: Iterable[int]) -> str:
    return "/".join(map(str, buckets))


@dataclass(frozen=True, slots=True)
class _Grid:
    axes: Axes
    cells: Mapping[str, tuple[float, ...]]
    """Cells by their buckets, as "0/2/1"; a wider cell lacks the last ones, the widest is ""."""

    def __post_init__(self) -> None:
        for key, values in self.cells.items():
            buckets = key.split("/") if key else []
            within = all(b.isdecimal() and int(b) <= len(a) for b, a in zip(buckets, self.axes, strict=False))
            if len(buckets) > len(self.axes) or not within:
                raise ValueError(f"cell {key!r} is not on the axes")
            self._check(key, values)
        if self.cells and "" not in self.cells:
            raise ValueError('has cells, but not the widest, ""')

    def _check(self, key: str, values: tuple[float, ...]) -> None:
        raise NotImplementedError

    def cell(self, where: Sequence[float]) -> tuple[str, tuple[float, ...]]:
        """The narrowest cell there is for `where`. KeyError if there is none at all."""
        key = _key(bisect_right(axis, value) for axis, value in zip(self.axes, where, strict=True))
        while key not in self.cells:
            if not key:
                raise KeyError("an empty table was asked")
            key = key.rpartition("/")[0]
        return key, self.cells[key]


@dataclass(frozen=True, slots=True)
class Tables(_Grid):
    """Quantiles of one quantity: at LEVELS, or at FEW_LEVELS."""

    def _check(self, key: str, values: tuple[float, ...]) -> None:
        if len(values) not in (len(LEVELS), len(FEW_LEVELS)):
            raise ValueError(
                f"cell {key!r} needs {len(LEVELS)} or {len(FEW_LEVELS)} quantiles, not {len(values)}"
            )
        if any(a > b for a, b in pairwise(values)) or not all(map(math.isfinite, values)):
            raise ValueError(f"quantiles of cell {key!r} must be finite and in ascending order")

    def at(self, level: float, *where: float) -> float:
        """The quantile at `level` from 0 to 1; beyond the outermost levels the same as there."""
        values = self.cell(where)[1]
        levels, places = (LEVELS, _PLACES) if len(values) == len(LEVELS) else (FEW_LEVELS, _FEW_PLACES)
        place = _place(min(max(level, levels[0]), levels[-1]))
        i = min(bisect_right(places, place), len(places) - 1)
        low, high = values[i - 1], values[i]
        if low == high:
            return low
        part = (place - places[i - 1]) / (places[i] - places[i - 1])
        return math.sinh((1 - part) * math.asinh(low) + part * math.asinh(high))


@dataclass(frozen=True, slots=True)
class Shares(_Grid):
    """How often each of some outcomes came; whoever fitted it knows their order."""

    def _check(self, key: str, values: tuple[float, ...]) -> None:
        if not all(0 <= share <= 1 for share in values) or abs(sum(values) - 1) > 0.01:
            raise ValueError(f"shares of cell {key!r} must be from 0 to 1, and 1 together")

    def of(self, *where: float) -> tuple[float, ...]:
        """The shares of all outcomes."""
        return self.cell(where)[1]


def fit_tables(axes: Axes, samples: Iterable[Sample]) -> Tables:
    """Quantiles of the samples. No samples give no cells."""
    cells = _telling(_gather(axes, samples), _has_other_quantiles)
    return Tables(axes, {key: _quantiles(values) for key, values in cells.items()})


def fit_shares(axes: Axes, samples: Iterable[Sample], outcomes: int) -> Shares:
    """Shares of the outcomes 0, 1, ... among the samples' values. No samples give no cells."""
    cells = _telling(_gather(axes, samples), _has_other_shares)
    return Shares(
        axes,
        {
            key: tuple(short(float(np.mean(values == outcome))) for outcome in range(outcomes))
            for key, values in cells.items()
        },
    )


def short(value: float) -> float:
    """Rounded to the digits that are kept."""
    return float(f"{value:.{_DIGITS}g}")


def _quantiles(values: Values) -> tuple[float, ...]:
    levels = FEW_LEVELS if len(values) < _FEW else LEVELS
    return tuple(short(value) for value in np.quantile(values, levels))


def _gather(axes: Axes, samples: Iterable[Sample]) -> Mapping[str, Values]:
    """Each sample in its cell and in all wider ones, the widest first."""
    cells: dict[str, list[float]] = defaultdict(list)
    for where, value in samples:
        buckets = [bisect_right(axis, at) for axis, at in zip(axes, where, strict=True)]
        for depth in range(len(axes) + 1):
            cells[_key(buckets[:depth])].append(value)
    return {key: np.array(cells[key], np.float64) for key in sorted(cells, key=lambda key: (len(key), key))}


def _telling(cells: Mapping[str, Values], differs: Callable[[Values, Values], bool]) -> Mapping[str, Values]:
    """The cells that saw enough, and something else than the next wider one that is kept.

    A wider cell then stands for the rest: its samples are those that no narrower one keeps.
    """
    kept: list[str] = []
    for key, values in cells.items():
        if not key or (len(values) >= _LEAST_SAMPLES and differs(values, cells[_narrowest(key, kept)])):
            kept.append(key)
    depth = max(key.count("/") for key in cells) if cells else 0
    rest: dict[str, list[Values]] = {key: [] for key in kept}
    for key, values in cells.items():
        if key.count("/") == depth:
            rest[_narrowest(key, kept)].append(values)
    return {
        key: np.concatenate(parts) if sum(map(len, parts)) >= _LEAST_SAMPLES else cells[key]
        for key, parts in rest.items()
    }


def _narrowest(key: str, kept: Collection[str]) -> str:
    while key and key not in kept:
        key = key.rpartition("/")[0]
    return key


def _noise(part: Values, whole: Values) -> float:
    """Deviation of the mean of a random part, per deviation of one sample; 0 if it is the whole."""
    return math.sqrt(max(0.0, 1 / len(part) - 1 / len(whole)))


def _has_other_quantiles(part: Values, whole: Values) -> bool:
    """Compares by the greatest distance of the distributions (Kolmogorov-Smirnov), and far out by the shares."""
    ordered, points = np.sort(whole), np.sort(part)
    mine = np.arange(1, len(points) + 1) / len(points)
    theirs = np.searchsorted(ordered, points, side="right") / len(ordered)
    far = np.abs(mine - theirs).max() > _FAR * _noise(part, whole) > 0
    return bool(far) or any(_has_other_shares(part > end, whole > end) for end in np.quantile(whole, _TAILS))


def _has_other_shares(part: Values, whole: Values) -> bool:
    for outcome in np.unique(whole):
        share = float(np.mean(whole == outcome))
        far = _FAR * math.sqrt(share * (1 - share)) * _noise(part, whole)
        if abs(float(np.mean(part == outcome)) - share) > far > 0:
            return True
    return False
