from __future__ import annotations

import pytest

from flashstate.fit.plan import LEAST_LONGEST, SHORTEST_RATIO, plan


@pytest.mark.parametrize("longest", [LEAST_LONGEST, 12_000, 65_536])
def test_lengths_span_the_range_and_never_leave_it(longest: int) -> None:
    chains = plan(longest)
    firsts = [chain.first for chain in chains]
    assert firsts == sorted(set(firsts))
    assert (firsts[0], firsts[-1]) == (round(longest / SHORTEST_RATIO), longest)
    for chain in chains:
        assert chain.then is None or chain.first < chain.then <= longest


def test_warm_starts_grow_by_much_and_by_little() -> None:
    ratios = [chain.then / chain.first for chain in plan(65_536) if chain.then]
    assert min(ratios) < 1.1 and max(ratios) > 10


def test_held_out_lengths_lie_between_others_and_are_fitted_nowhere() -> None:
    chains = plan(65_536)
    held_out = {
        length for chain in chains if chain.held_out for length in (chain.first, chain.then) if length
    }
    fitted = {
        length for chain in chains if not chain.held_out for length in (chain.first, chain.then) if length
    }
    assert len(held_out) >= 4
    assert not held_out & fitted
    assert min(fitted) < min(held_out) and max(held_out) < max(fitted)


def test_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match=f"--longest 1023: must be {LEAST_LONGEST}"):
        plan(1023)
