from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.placement import Prompt, make_placement, placement_names
from flashstate.core.placement.learnt import Learnt


def spots(name: str, tokens: int, resumed: int = 0, resident: int = 0, block: int = 100) -> list[int]:
    prompt = Prompt(tokens, resumed, resident, block)
    return [spot.position for spot in make_placement(name).spots(prompt)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dense", [200, 400, 500]),
        ("sparse", [300, 500]),
        ("asc", [200, 400, 500, 549]),
        ("lean", [549]),
        ("back", [358]),
        ("learnt", [358]),
    ],
)
def test_where_checkpoints_are_taken(name: str, expected: list[int]) -> None:
    assert spots(name, 550, resumed=120, resident=320) == expected


def test_a_dense_grid_counts_from_the_start() -> None:
    assert spots("every-1088", 3000, resumed=1500, block=4352) == [2176]


@given(
    st.sampled_from(placement_names()),
    st.integers(1, 10_000),
    st.data(),
    st.integers(1, 700),
)
def test_spots_lie_in_what_is_computed(name: str, tokens: int, data: st.DataObject, block: int) -> None:
    resumed = data.draw(st.integers(0, tokens - 1))
    found = spots(name, tokens, resumed, data.draw(st.integers(resumed, tokens)), block)
    assert found == sorted(set(found))
    assert all(resumed < position < tokens for position in found)


def test_the_distance_follows_the_edits() -> None:
    placement = Learnt()
    assert placement.back_tokens == 192
    for _ in range(3000):
        placement.learn(500, uncached_tokens=2000)
    assert placement.back_tokens == 512
    for _ in range(6000):
        placement.learn(0, uncached_tokens=2000)
    assert placement.back_tokens == 0
    assert [spot.position for spot in placement.spots(Prompt(550, 0, 0, 100))] == [549]


def test_rare_far_edits_do_not_cost_the_many_near_ones() -> None:
    placement = Learnt()
    for number in range(4000):
        placement.learn(1000 if number % 50 == 0 else 60, uncached_tokens=1500)
    assert placement.back_tokens == 64


def test_deep_edits_and_no_edits_teach_nothing() -> None:
    placement = Learnt()
    before = placement.back_tokens
    for _ in range(500):
        placement.learn(100_000, uncached_tokens=1000)
        placement.learn(None, uncached_tokens=1000)
    assert placement.back_tokens == before


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"placement 'nowhere': unknown; one of asc, back"):
        make_placement("nowhere")
