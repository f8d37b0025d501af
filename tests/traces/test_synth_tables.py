from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.traces.synth.tables import ALONE, LEVELS, Sample, Shares, Tables, fit_shares, fit_tables

levels = st.floats(0, 1)


def make_samples(cell: float, values: list[float]) -> list[Sample]:
    return [((cell,), value) for value in values]


def test_quantiles_are_kept_at_their_levels() -> None:
    values = [float(value) for value in range(1001)]
    table = fit_tables(ALONE, [((), value) for value in values])
    assert [table.at(level) for level in LEVELS] == pytest.approx(np.quantile(values, LEVELS), rel=0.005)
    assert (table.at(0.0), table.at(1.0)) == (table.at(LEVELS[0]), table.at(LEVELS[-1]))


def test_a_heavy_tail_is_read_on_its_own_scale() -> None:
    """Between 99% and 99.9% of a Pareto distribution lies what it has there, not the middle of both."""
    table = fit_tables(ALONE, [((), float((1 - (i + 0.5) / 100_000) ** -1)) for i in range(100_000)])
    assert table.at(0.995) == pytest.approx(200, rel=0.05)
    assert table.at(0.9995) == pytest.approx(2000, rel=0.15)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=300), levels, levels)
def test_levels_are_in_order_and_within_what_was_seen(values: list[float], a: float, b: float) -> None:
    table = fit_tables(ALONE, [((), value) for value in values])
    low, high = table.at(min(a, b)), table.at(max(a, b))
    assert low <= high or low == pytest.approx(high, rel=1e-9)
    size = max(map(abs, values)) * 0.01 + 1e-9  # three digits are kept
    assert min(values) - size <= low and high <= max(values) + size


def test_a_cell_is_kept_where_it_tells_something() -> None:
    low, high = [float(i % 7) for i in range(500)], [100.0 + i % 7 for i in range(500)]
    table = fit_tables(((1.0, 2.0),), [*make_samples(0, low), *make_samples(1, low), *make_samples(2, high)])
    assert table.at(0.5, 5) == pytest.approx(103.0)
    assert (table.at(0.5, 0), table.at(0.5, 1.5)) == pytest.approx((3.0, 3.0))


def test_the_widest_cell_stands_for_what_no_other_keeps() -> None:
    """Else what a narrow cell has would be drawn twice: there, and as a part of the rest."""
    table = fit_tables(((1.0,),), [*make_samples(0, [5.0] * 900), *make_samples(1, [50.0] * 100)])
    assert table.cells.keys() in ({"", "1"}, {"", "0", "1"})
    assert table.at(0.99, 0) == 5.0


def test_too_few_samples_make_no_cell() -> None:
    table = fit_tables(((1.0,),), [*make_samples(0, [5.0] * 900), *make_samples(1, [50.0] * 10)])
    assert "1" not in table.cells
    assert table.at(0.5, 1) == 5.0


def test_shares() -> None:
    samples = [((0.0,), float(i % 4 == 0)) for i in range(400)] + [((1.0,), 1.0) for _ in range(400)]
    table = fit_shares(((0.5,),), samples, 2)
    assert table.of(0) == (0.75, 0.25)
    assert table.of(1) == (0.0, 1.0)


def test_nothing_seen_makes_an_empty_table() -> None:
    table = fit_tables(((1.0,),), [])
    assert not table.cells
    with pytest.raises(KeyError):
        table.at(0.5, 0)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"": (1, 2, 3)}, "needs 11 or 7 quantiles, not 3"),
        ({"": (1, 2, 3, 4, 5, 6, 0)}, "ascending order"),
        ({"": (1, 2, 3, 4, 5, 6, float("inf"))}, "must be finite"),
        ({"0": (1,) * 7}, "not the widest"),
        ({"": (1,) * 7, "2": (1,) * 7}, "cell '2' is not on the axes"),
        ({"": (1,) * 7, "0/0": (1,) * 7}, "cell '0/0' is not on the axes"),
        ({"": (1,) * 7, "x": (1,) * 7}, "cell 'x' is not on the axes"),
    ],
)
def test_broken_tables(cells: dict[str, tuple[float, ...]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Tables(((1.0,),), cells)


@pytest.mark.parametrize("shares", [(0.5, 0.2), (1.5, -0.5)])
def test_broken_shares(shares: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must be from 0 to 1, and 1 together"):
        Shares(ALONE, {"": shares})


def test_levels_ascend() -> None:
    assert all(a < b for a, b in pairwise(LEVELS))
