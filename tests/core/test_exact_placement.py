"""The placement that needs no grid: what it offers, and what it takes when a chunk has room for one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.cost import PrefillCostModel
from flashstate.core.placement import make_placement
from flashstate.core.placement.base import Prompt, Spot
from flashstate.core.placement.exact import LEAST_TOKENS, Exact
from flashstate.core.state import JUNCTION, NAMED, PROMPT_END

COST = PrefillCostModel()


def make_prompt(
    tokens: int = 2200,
    resumed: int = 0,
    resident: int = 0,
    shared: tuple[int, ...] = (),
    named: tuple[int, ...] = (),
) -> Prompt:
    return Prompt(tokens, resumed, resident, 160, shared, named)


def test_it_offers_the_junction_to_the_token_and_the_prompt_s_end() -> None:
    spots = Exact().spots(make_prompt(resident=1500))
    assert spots == (Spot(1500, JUNCTION), Spot(2199, PROMPT_END))


def test_prompts_that_live_now_part_where_nothing_is_resident_yet() -> None:
    spots = Exact().spots(make_prompt(shared=(900, 1500)))
    assert [spot.position for spot in spots] == [900, 1500, 2199]


def test_a_named_position_is_offered_under_its_own_kind() -> None:
    assert Spot(700, NAMED) in Exact().spots(make_prompt(named=(700,), shared=(700,)))


def test_a_junction_just_above_the_state_resumed_from_is_not_worth_one() -> None:
    near = make_prompt(resumed=1000, resident=1000 + LEAST_TOKENS - 1)
    far = make_prompt(resumed=1000, resident=1000 + LEAST_TOKENS)
    assert [spot.kind for spot in Exact().spots(near)] == [PROMPT_END]
    assert [spot.kind for spot in Exact().spots(far)] == [JUNCTION, PROMPT_END]


def test_of_a_chunk_s_positions_it_takes_the_one_expected_to_save_most() -> None:
    exact, spots = Exact(), (Spot(1500, JUNCTION), Spot(2199, PROMPT_END))
    assert exact.best(spots, 0, 2200, 0, COST) == spots[0]
    # A short shared part is worth less than a tenth of the prompt.
    assert exact.best((Spot(100, JUNCTION), spots[1]), 0, 2200, 0, COST) == spots[1]
    # Once the junction is taken, what the end saves is only the way from there.
    assert exact.best(spots, 1920, 2200, 1500, COST) == spots[1]
    assert exact.best(spots, 1500, 1920, 1500, COST) is None


def test_clients_that_always_turn_back_make_the_prompt_s_end_worth_more() -> None:
    exact, spots = Exact(), (Spot(1500, JUNCTION), Spot(2199, PROMPT_END))
    for _ in range(200):
        exact.learn(10, 100)
    assert exact.best(spots, 0, 2200, 0, COST) == spots[1]


def test_a_turn_back_or_two_do_not_move_the_prompt_s_end_for_everybody() -> None:
    exact = Exact()
    for _ in range(2):
        exact.learn(2, 1000)
    assert exact.spots(make_prompt())[-1].position == 2199
    for _ in range(20):
        exact.learn(150, 1000)
    assert exact.spots(make_prompt())[-1].position == 2200 - 192


@given(st.integers(2, 5000), st.integers(0, 5000), st.integers(0, 5000), st.lists(st.integers(1, 5000)))
def test_whatever_it_offers_lies_in_what_is_computed(
    tokens: int, resumed: int, resident: int, shared: list[int]
) -> None:
    prompt = make_prompt(tokens, resumed, resident, tuple(shared), tuple(shared[:2]))
    positions = [spot.position for spot in make_placement("exact").spots(prompt)]
    assert positions == sorted(set(positions))
    assert all(resumed < position < tokens for position in positions)
