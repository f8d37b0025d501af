from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashstate.core.cost import PrefillCostModel
from flashstate.fit.measure import Prefill
from flashstate.fit.regression import PrefillTime, Samples, _non_negative, intervals, regress, resample
from tests.fit.make import KNOWN, make_prefills


def samples(prefills: list[Prefill]) -> Samples:
    starts, stops = (np.array([getattr(p, name) for p in prefills]) for name in ("start", "stop"))
    return Samples(starts, stops, np.array([p.seconds for p in prefills]))


def test_exact_times_give_the_exact_coefficients() -> None:
    found = regress(samples(make_prefills(rounds=1)))
    assert asdict(found) == pytest.approx(asdict(KNOWN), rel=1e-6)


def test_a_time_is_the_cost_model_and_overhead() -> None:
    starts, stops = np.array([0, 700, 5000]), np.array([700, 9000, 5001])
    cost = PrefillCostModel(KNOWN.d, KNOWN.e)
    expected = [
        cost.seconds(a, b) + KNOWN.request_s + (KNOWN.resume_s if a else 0) + b * KNOWN.prompt_token_s
        for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    assert KNOWN.seconds(starts, stops) == pytest.approx(expected)
    assert KNOWN.cost == cost


def test_noise_and_outliers_hardly_matter() -> None:
    # Least squares on these is off by a third.
    found = regress(samples(make_prefills(noise=0.05, outliers=0.15)))
    assert found.d == pytest.approx(KNOWN.d, rel=0.1)
    assert found.e == pytest.approx(KNOWN.e, rel=0.1)


def test_a_length_that_is_disturbed_in_every_round_is_outvoted() -> None:
    prefills = [
        replace(p, seconds=p.seconds * (2 if p.stop == 65_536 and p.start == 0 else 1))
        for p in make_prefills()
    ]
    found = regress(samples(prefills))
    assert found.d == pytest.approx(KNOWN.d, rel=0.1)
    assert found.e == pytest.approx(KNOWN.e, rel=0.1)


def test_cold_starts_alone_give_d_what_a_prompt_token_costs() -> None:
    found = regress(samples(make_prefills(warm=False)))
    assert found.d == pytest.approx(KNOWN.d + KNOWN.prompt_token_s, rel=1e-6)
    assert (found.resume_s, found.prompt_token_s) == (0, 0)
    assert found.e == pytest.approx(KNOWN.e, rel=1e-6)


def test_no_coefficient_is_negative() -> None:
    # Time that grows ever slower asks for an E below 0.
    prefills = [replace(p, seconds=0.01 + 1e-3 * (p.stop - p.start) ** 0.7) for p in make_prefills()]
    found = regress(samples(prefills))
    assert found.e == 0
    assert min(asdict(found).values()) >= 0


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_non_negative_least_squares_is_optimal(seed: int) -> None:
    """By the conditions of Karush, Kuhn and Tucker, which no other point meets."""
    random = np.random.default_rng(seed)
    rows, target = random.standard_normal((12, 5)), random.standard_normal(12)
    found = _non_negative(rows, target)
    gradient = rows.T @ (rows @ found - target)
    assert (found >= 0).all()
    assert (gradient >= -1e-8).all()
    assert np.abs(gradient * found).max() < 1e-8


def test_intervals_hold_the_truth_and_shrink_with_measurements() -> None:
    few, many = (samples(make_prefills(noise=0.05, rounds=rounds)) for rounds in (3, 24))
    widths = []
    for measured in (few, many):
        low, high = intervals(resample(measured))["d"]
        assert low < KNOWN.d < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 1.5


def test_the_coefficients_are_named_once() -> None:
    assert set(intervals(resample(samples(make_prefills(rounds=1))))) == set(PrefillTime.__slots__)
