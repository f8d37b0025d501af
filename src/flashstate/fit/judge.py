"""From measured prefills to a fit that can be trusted, or to the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from flashstate.fit.measure import Prefill
from flashstate.fit.regression import PrefillTime, Samples, interval, intervals, regress, resample

MOST_ERROR: Final = 0.10
"""Median relative error on held-out lengths."""
MOST_UNCERTAINTY: Final = 0.25
"""Of T for the longest prompt: half of its 95% interval, relative."""
LEAST_PREFILLS: Final = 12
LEAST_LENGTHS: Final = 4
LEAST_HELD_OUT: Final = 2
LEAST_RATIO: Final = 8
"""The most computed tokens of a prefill over the fewest."""
_AGAIN: Final = "measure again while the server does nothing else, with more --rounds"


class FitError(ValueError):
    """Prefills that make no good fit. One line: why, and what to do."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Prefills of the same tokens [start, stop): how long they took (the median) and what the fit says, in seconds."""

    start: int
    stop: int
    times: int
    measured_s: float
    predicted_s: float
    held_out: bool

    @property
    def relative_error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class Fit:
    """A fit, its 95% intervals by coefficient, and how it compares with what was measured."""

    time: PrefillTime
    intervals: Mapping[str, tuple[float, float]]
    comparisons: tuple[Comparison, ...]

    def median_error(self, *, held_out: bool) -> float:
        """Median over the lengths that were held out, or over those that were fitted, of |relative error|."""
        errors = [abs(c.relative_error) for c in self.comparisons if c.held_out == held_out]
        return float(np.median(errors))


def fit(prefills: Sequence[Prefill]) -> Fit:
    """Fits what is not held out and checks it on what is. Raises FitError for a fit that nobody should use."""
    fitted = [prefill for prefill in prefills if not prefill.held_out]
    _check_enough(fitted, [prefill for prefill in prefills if prefill.held_out])
    samples = _samples(fitted)
    time, longest = regress(samples), int(samples.stops.max())
    if time.d == 0:
        raise FitError(
            f"no D above 0 fits: time does not grow with the tokens up to {longest} as prefill does: "
            "use a longer --longest"
        )
    resampled = resample(samples)
    _check_stable(time, resampled, longest)
    found = Fit(time, intervals(resampled), _compare(time, prefills))
    error = found.median_error(held_out=True)
    if error > MOST_ERROR:
        raise FitError(
            f"the fit is off by {error:.0%} (median) on held-out lengths, {MOST_ERROR:.0%} at most: {_AGAIN}"
        )
    return found


def _check_enough(fitted: Sequence[Prefill], held_out: Sequence[Prefill]) -> None:
    def refuse(what: str, count: float, least: int) -> None:
        if count < least:
            raise FitError(f"{count:g} {what}: {least} at least; measure more, with --longest and --rounds")

    refuse("prefills to fit", len(fitted), LEAST_PREFILLS)
    refuse("different lengths to fit", len({prefill.stop for prefill in fitted}), LEAST_LENGTHS)
    refuse("held-out lengths to check with", len({prefill.stop for prefill in held_out}), LEAST_HELD_OUT)
    computed = [prefill.stop - prefill.start for prefill in fitted]
    ratio = max(computed) / max(min(computed), 1)
    refuse("times the fewest tokens is the most that a prefill computed", ratio, LEAST_RATIO)


def _check_stable(time: PrefillTime, resampled: Sequence[PrefillTime], longest: int) -> None:
    """Only what E and D make together must be certain: on short prompts E may be anything, and matters as little."""
    seconds = np.array([t.d * longest + t.e * 1e-6 * longest**2 for t in resampled])
    low, high = interval(seconds)
    middle = time.cost.seconds(0, longest)
    uncertainty = (high - low) / 2 / middle
    if uncertainty > MOST_UNCERTAINTY:
        raise FitError(
            f"prefill of {longest} tokens takes {middle:.3g} s +- {uncertainty:.0%} by the fit, "
            f"{MOST_UNCERTAINTY:.0%} at most: {_AGAIN}"
        )


def _compare(time: PrefillTime, prefills: Sequence[Prefill]) -> tuple[Comparison, ...]:
    groups: dict[tuple[int, int, bool], list[float]] = {}
    for prefill in prefills:
        groups.setdefault((prefill.start, prefill.stop, prefill.held_out), []).append(prefill.seconds)
    keys = sorted(groups)
    starts, stops = (np.array([key[i] for key in keys], dtype=np.int64) for i in (0, 1))
    predicted = time.seconds(starts, stops)
    return tuple(
        Comparison(start, stop, len(groups[key]), float(np.median(groups[key])), float(seconds), held_out)
        for key, seconds in zip(keys, predicted, strict=True)
        for start, stop, held_out in [key]
    )


def _samples(prefills: Sequence[Prefill]) -> Samples:
    return Samples(
        np.array([prefill.start for prefill in prefills], dtype=np.int64),
        np.array([prefill.stop for prefill in prefills], dtype=np.int64),
        np.array([prefill.seconds for prefill in prefills]),
    )
