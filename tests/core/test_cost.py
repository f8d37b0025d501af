"""The prefill cost model against answers worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.cost import PrefillCostModel

position = st.integers(0, 10**6)


@pytest.mark.parametrize(
    ("start", "stop", "seconds"),
    [
        (0, 0, 0.0),
        (0, 1_000, 0.01862333),  # 1.862e-5 * 1000 + 3.33e-6 * 1^2
        (0, 142_000, 2.71118612),  # 2.64404 + 3.33e-6 * 142^2
        (100_000, 142_000, 0.81588612),  # 0.78204 + 3.33e-6 * (142^2 - 100^2)
    ],
)
def test_published_coefficients(start: int, stop: int, seconds: float) -> None:
    assert PrefillCostModel().seconds(start, stop) == pytest.approx(seconds, rel=1e-9, abs=1e-15)


@given(st.tuples(position, position, position).map(sorted))
def test_stretches_add_up(cuts: list[int]) -> None:
    cost = PrefillCostModel()
    whole = cost.seconds(cuts[0], cuts[2])
    assert whole == pytest.approx(cost.seconds(cuts[0], cuts[1]) + cost.seconds(cuts[1], cuts[2]), abs=1e-9)


@given(position, st.integers(1, 10**5), position)
def test_later_tokens_cost_more(start: int, length: int, shift: int) -> None:
    cost = PrefillCostModel()
    assert cost.seconds(start, start + length) <= cost.seconds(start + shift, start + shift + length) + 1e-9


@pytest.mark.parametrize(
    ("d", "e"), [(-1.0, 1.0), (1.0, -1.0), (0.0, 0.0), (float("nan"), 1.0), (1.0, float("inf"))]
)
def test_refuses_what_is_no_cost(d: float, e: float) -> None:
    with pytest.raises(ValueError, match="--prefill-cost-coefficients"):
        PrefillCostModel(d, e)
