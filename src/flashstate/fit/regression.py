"""The robust regression behind a fit: non-negative coefficients, relative errors, outliers held in check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flashstate.core.cost import PrefillCostModel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_HUBER: Final = 1.345
"""In standard deviations: residuals beyond count linearly. 95% as efficient as least squares on normal noise."""
_STEPS: Final = 50
_CLOSE: Final = 1e-4
"""Steps end once they change no coefficient by more, relatively: noise is far above."""
_ROUNDING: Final = 1e-12
_RESAMPLES: Final = 200
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class PrefillTime:
    """Seconds from a request to its first token: T(a, b) and overhead that no hit saves.

    T = `d` (b - a) + `e` (b^2 - a^2), as in `PrefillCostModel`: `d` in s/token, `e` in s/(1,000 tokens)^2.
    `request_s`: a request's and its batches' overhead. `resume_s`: the same of a warm start, in addition: what is
    loaded, and chunks cut to the block grid. `prompt_token_s`: what every prompt token costs, cached or not: HTTP,
    JSON, hashing. Without the last two, E would take the blame for what warm starts cost at any length.
    """

    d: float
    e: float
    request_s: float
    resume_s: float
    prompt_token_s: float

    @property
    def cost(self) -> PrefillCostModel:
        """T alone. Raises ValueError if it is 0."""
        return PrefillCostModel(self.d, self.e)

    def seconds(self, starts: Ints, stops: Ints) -> Floats:
        """Seconds to the first token; [N] positions in tokens each."""
        found: Floats = _terms(starts, stops) @ np.array(
            [self.d, self.e, self.request_s, self.resume_s, self.prompt_token_s]
        )
        return found


@dataclass(frozen=True, slots=True)
class Samples:
    """N prefills: of tokens [starts, stops), in `seconds` > 0. Arrays of shape [N]."""

    starts: Ints
    stops: Ints
    seconds: Floats

    def medians(self) -> tuple[Samples, Ints]:
        """One sample for all of the same tokens, with their median time, and of how many each was made."""
        same, which, counts = np.unique(
            np.stack([self.starts, self.stops]), axis=1, return_inverse=True, return_counts=True
        )
        which = which.reshape(-1)
        middles = [np.median(self.seconds[which == i]) for i in range(len(counts))]
        return Samples(same[0], same[1], np.array(middles)), counts


def regress(samples: Samples) -> PrefillTime:
    """Huber's M-estimate of relative errors, by iteratively reweighted least squares, with no negative coefficient.

    It sees the median time of each prefill, which a moment's disturbance leaves alone; what disturbs for longer is
    for Huber's weights. Errors are relative, as noise grows with time: else the longest prompts alone would decide.
    """
    middles, counts = samples.medians()
    scaled = _terms(middles.starts, middles.stops) / middles.seconds[:, None]
    if not middles.starts.any():
        # With cold starts alone, b and b - a are the same: all of it goes to D.
        scaled[:, -1] = 0.0
    weights = np.sqrt(counts)
    found = np.zeros(scaled.shape[1])
    for _ in range(_STEPS):
        before, found = found, _non_negative(scaled * weights[:, None], weights)
        residuals = np.abs(scaled @ found - 1)
        deviation = max(1.4826 * float(np.median(residuals)), 1e-12)
        weights = np.sqrt(counts * np.minimum(1.0, _HUBER * deviation / np.maximum(residuals, 1e-15)))
        if (np.abs(found - before) <= _CLOSE * before).all():
            break
    return PrefillTime(*map(float, found))


def resample(samples: Samples) -> list[PrefillTime]:
    """The same from samples drawn anew with replacement: the bootstrap. The draws are the same every time."""
    random = np.random.default_rng(0)
    count = len(samples.seconds)
    found = []
    for _ in range(_RESAMPLES):
        drawn = random.integers(0, count, count)
        found.append(regress(Samples(samples.starts[drawn], samples.stops[drawn], samples.seconds[drawn])))
    return found


def interval(values: Floats) -> tuple[float, float]:
    """The middle 95% of what the bootstrap found."""
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def intervals(resampled: list[PrefillTime]) -> Mapping[str, tuple[float, float]]:
    """A 95% interval of every coefficient, by name."""
    return {
        name: interval(np.array([getattr(time, name) for time in resampled]))
        for name in PrefillTime.__slots__
    }


def _terms(starts: Ints, stops: Ints) -> Floats:
    """[N, 5]: what the coefficients are multiplied with."""
    a, b = starts.astype(np.float64), stops.astype(np.float64)
    return np.stack([b - a, (b - a) * (b + a) * 1e-6, np.ones_like(b), (a > 0).astype(np.float64), b], axis=1)


def _non_negative(rows: Floats, target: Floats) -> Floats:
    """argmin |rows @ x - target| over x >= 0.

    The optimum is the plain least-squares solution on the columns where it is above 0: with five columns, all 32
    sets can be tried. The first one from which no other column leads down is it.
    """
    scale = np.sqrt((rows**2).sum(axis=0))
    columns = np.flatnonzero(scale)
    scaled = rows[:, columns] / scale[columns]
    best, best_loss = np.zeros(rows.shape[1]), float(target @ target)
    for size in range(len(columns), 0, -1):
        for kept in map(list, combinations(range(len(columns)), size)):
            solution = np.linalg.lstsq(scaled[:, kept], target, rcond=None)[0]
            if solution.min() < 0:
                continue
            residuals = scaled[:, kept] @ solution - target
            if (loss := float(residuals @ residuals)) < best_loss:
                best, best_loss = np.zeros(rows.shape[1]), loss
                best[columns[kept]] = solution / scale[columns[kept]]
            if (residuals @ scaled).min() >= -_ROUNDING * np.sqrt(target @ target):
                return best
    return best
