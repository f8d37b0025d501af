"""Every recomputed token has one cause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.attribution import attribute
from flashstate.core.cost import PrefillCostModel
from flashstate.core.history import Precedent

COST = PrefillCostModel()


@pytest.mark.parametrize(
    ("resumed", "computed", "checkpoints", "resident", "placement", "capacity", "dependency"),
    [
        (0, 100, (40, 80), 100, 20, 0, 80),  # KV is there, both checkpoints are gone
        (40, 100, (40, 80), 100, 20, 0, 40),
        (40, 100, (40, 80), 60, 20, 40, 0),  # the KV up to 80 is gone too
        (0, 100, (40, 80), 0, 20, 80, 0),
        (0, 100, (), 100, 100, 0, 0),  # none was ever taken
        (80, 100, (40, 80), 0, 20, 0, 0),
        (100, 100, (40, 100), 100, 0, 0, 0),
        (64, 0, (), 0, 0, 0, 0),  # beyond what is remembered: ideal
    ],
)
def test_known_answers(
    resumed: int,
    computed: int,
    checkpoints: tuple[int, ...],
    resident: int,
    placement: int,
    capacity: int,
    dependency: int,
) -> None:
    got = attribute(120, resumed, Precedent(computed, checkpoints, None), resident, COST)
    assert got.missed_tokens == {"placement": placement, "capacity": capacity, "dependency": dependency}
    assert got.ideal_tokens == max(computed, resumed)


@given(
    resumed=st.integers(0, 10_000),
    computed=st.integers(0, 10_000),
    checkpoints=st.lists(st.integers(1, 10_000), unique=True).map(sorted).map(tuple),
    resident=st.integers(0, 10_000),
)
def test_causes_add_up_to_what_was_missed(
    resumed: int, computed: int, checkpoints: tuple[int, ...], resident: int
) -> None:
    got = attribute(10_001, resumed, Precedent(computed, checkpoints, None), resident, COST)
    assert min(got.missed_tokens.values()) >= 0
    assert resumed + sum(got.missed_tokens.values()) == got.ideal_tokens
    seconds = COST.seconds(resumed, got.ideal_tokens)
    assert sum(got.missed_seconds.values()) == pytest.approx(seconds, abs=1e-9)
