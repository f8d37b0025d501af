from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashstate.fit.judge import FitError, fit
from flashstate.fit.measure import Prefill
from tests.fit.make import KNOWN, make_prefills


def refused(prefills: list[Prefill]) -> str:
    with pytest.raises(FitError) as error:
        fit(prefills)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_good_fit() -> None:
    found = fit(make_prefills(noise=0.05, outliers=0.1))
    assert found.median_error(held_out=True) < 0.05
    assert found.time.d == pytest.approx(KNOWN.d, rel=0.1)
    held_out = [c for c in found.comparisons if c.held_out]
    assert {c.times for c in held_out} == {7}
    assert any(c.start for c in held_out) and not all(c.start for c in held_out)


def test_held_out_prefills_have_no_part_in_the_fit() -> None:
    prefills = make_prefills(noise=0.05)
    moved = [replace(p, seconds=p.seconds * 1.05) if p.held_out else p for p in prefills]
    assert fit(moved).time == fit(prefills).time
    assert fit(moved).comparisons != fit(prefills).comparisons


def test_an_error_is_that_of_the_median_time() -> None:
    prefills = make_prefills()
    stop = next(p.stop for p in prefills if p.held_out)
    slower = [replace(p, seconds=p.seconds * 1.25) if p.stop == stop else p for p in prefills]
    (comparison,) = (c for c in fit(slower).comparisons if c.stop == stop)
    assert comparison.relative_error == pytest.approx(1 / 1.25 - 1, abs=1e-4)


def test_what_the_model_does_not_predict_is_refused() -> None:
    prefills = [replace(p, seconds=p.seconds * 1.2) if p.held_out else p for p in make_prefills()]
    message = refused(prefills)
    assert "off by 17% (median) on held-out lengths, 10% at most: measure again" in message


def test_too_few_prefills() -> None:
    assert refused(make_prefills(rounds=1, warm=False)).startswith("7 prefills to fit: 12 at least")
    cold = make_prefills(warm=False)
    assert "2 different lengths to fit: 4" in refused([p for p in cold if p.held_out or p.stop < 3000])
    assert "0 held-out lengths" in refused([p for p in make_prefills() if not p.held_out])


def test_lengths_too_much_alike() -> None:
    alike = [replace(p, start=0, stop=10_000 + p.stop % 1000) for p in make_prefills()]
    assert "times the fewest tokens is the most that a prefill computed: 8 at least" in refused(alike)


def test_time_that_does_not_grow_is_refused() -> None:
    random = np.random.default_rng(0)
    prefills = [replace(p, seconds=0.05 * (1 - 1e-6 * p.stop)) for p in make_prefills()]
    assert "no D above 0 fits" in refused(prefills)
    noisy = [replace(p, seconds=float(np.exp(random.standard_normal()))) for p in make_prefills()]
    assert refused(noisy)


def test_coefficients_that_hang_on_the_sample_are_refused() -> None:
    random = np.random.default_rng(3)
    prefills = [
        replace(p, seconds=p.seconds * float(np.exp(1.5 * random.standard_normal())))
        for p in make_prefills(rounds=2)
    ]
    assert "+-" in refused(prefills)
