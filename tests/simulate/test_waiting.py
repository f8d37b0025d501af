from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.cost import PrefillCostModel
from flashstate.simulate.waiting import IDLE_S, PATIENCE_S, Guard, Waiting, allowed, make_order, order_names

COST = PrefillCostModel(1e-3, 0.0)
"""A second for 1,000 tokens."""


def make_turn(serial: int, arrived_s: float = 0.0, tokens: int = 1000, blocks: int = 10) -> Waiting:
    return Waiting(serial, f"conversation {serial}", arrived_s, tokens, blocks)


def cold(_turn: Waiting) -> int:
    return 0


def warm(turn: Waiting) -> int:
    return turn.tokens - 1


# --- orders -----------------------------------------------------------------------------------------------


def test_first_come_is_first_served() -> None:
    turns = [make_turn(2), make_turn(0), make_turn(1)]
    order = make_order("fcfs", COST)
    found = order.next(turns, cold, 5.0)
    assert found is not None and found.serial == 0


def test_the_longest_resident_prefix_goes_first_and_then_who_came_first() -> None:
    order = make_order("resident", COST)
    positions = {0: 0, 1: 700, 2: 700}
    found = order.next([make_turn(2), make_turn(0), make_turn(1)], lambda t: positions[t.serial], 5.0)
    assert found is not None and found.serial == 1


def test_a_short_turn_overtakes_a_long_one_until_that_has_waited_long() -> None:
    order = make_order("hrrn", COST)
    long, short = make_turn(0, arrived_s=0.0, tokens=50_000), make_turn(1, arrived_s=90.0, tokens=1000)
    # 50 s and 1 s of service: wait over service is 0.02 a second and 1 a second.
    assert order.next([long, short], cold, 91.0) is long  # 91/50 against 1/1
    assert order.next([long, short], cold, 92.0) is short  # 92/50 against 2/1


def test_a_resident_prefix_is_service_not_needed() -> None:
    order = make_order("hrrn", COST)
    turns = [make_turn(0, tokens=50_000), make_turn(1, tokens=60_000)]
    found = order.next(turns, lambda t: 59_000 if t.serial == 1 else 0, 10.0)
    assert found is not None and found.serial == 1


def test_nobody_waits() -> None:
    assert all(make_order(name, COST).next([], cold, 0.0) is None for name in order_names())


def test_an_unknown_order() -> None:
    with pytest.raises(ValueError, match="order 'lifo': unknown; one of fcfs, resident, hrrn"):
        make_order("lifo", COST)


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=20))
def test_first_come_serves_in_the_order_of_arrival(arrivals: list[float]) -> None:
    order = make_order("fcfs", COST)
    turns = [make_turn(serial, at) for serial, at in enumerate(sorted(arrivals))]
    waiting, served = set(turns), []
    while waiting:
        found = order.next(waiting, cold, 100.0)
        assert found is not None
        waiting.remove(found)
        served.append(found)
    assert served == turns


def wait_of_the_long_one(order: str, long_tokens: int, short_tokens: list[int], serves: int) -> float | None:
    """One server that is never idle: when a turn has been served, the next short one arrives. None: never served."""
    rule, serials, lengths = make_order(order, COST), count(1), iter(short_tokens * serves)
    long = make_turn(0, tokens=long_tokens)
    waiting, now = [long, make_turn(next(serials), tokens=next(lengths))], 0.0
    for _ in range(serves):
        found = rule.next(waiting, cold, now)
        assert found is not None
        if found is long:
            return now
        waiting.remove(found)
        # Two for one: the queue only grows.
        waiting += [make_turn(next(serials), now, next(lengths)) for _ in range(2)]
        now += COST.seconds(0, found.tokens)
    return None


@given(
    long_tokens=st.integers(5_000, 20_000),
    short_tokens=st.lists(st.integers(1_000, 3_000), min_size=1, max_size=5),
)
def test_hrrn_never_starves_a_long_turn(long_tokens: int, short_tokens: list[int]) -> None:
    # While a long turn waits w, only short ones overtake that have waited w * short / long or more themselves.
    waited = wait_of_the_long_one("hrrn", long_tokens, short_tokens, serves=200)
    assert waited is not None


def test_longest_resident_starves_a_cold_turn() -> None:
    rule = make_order("resident", COST)
    long = make_turn(0)
    for serial in range(1, 1000):
        found = rule.next([long, make_turn(serial, float(serial))], lambda t: t.serial and 1, float(serial))
        assert found is not long


# --- guard ------------------------------------------------------------------------------------------------


def test_a_turn_without_its_context_waits_while_the_live_working_set_is_above_theta() -> None:
    guard = Guard(0.5, 100)
    first, second, third = (make_turn(n, blocks=20) for n in range(3))
    for turn in (first, second):
        assert guard.admits(turn, cold, 0.0)
        guard.started(turn)
    assert guard.live_blocks == 40
    assert not guard.admits(third, cold, 0.0)
    assert guard.admits(third, warm, 0.0)
    # Half of it or more is there.
    assert guard.admits(third, lambda t: t.tokens // 2, 0.0)
    assert not guard.admits(third, lambda t: t.tokens // 2 - 1, 0.0)


def test_a_conversation_counts_with_its_latest_turn_only() -> None:
    guard = Guard(0.5, 100)
    for blocks in (20, 30):
        turn = Waiting(0, "one", 0.0, 1000, blocks)
        guard.started(turn)
        guard.ended(turn, 1.0)
    assert guard.live_blocks == 30
    # Its own next turn takes the place of this one.
    assert guard.admits(Waiting(1, "one", 2.0, 1000, 50), cold, 2.0)
    assert not guard.admits(Waiting(1, "other", 2.0, 1000, 50), cold, 2.0)


def test_who_has_gone_idle_is_not_live() -> None:
    guard = Guard(0.5, 100)
    first, second = make_turn(0, blocks=40), make_turn(1, arrived_s=10.0, blocks=40)
    guard.started(first)
    assert not guard.admits(second, cold, 10.0)
    guard.ended(first, 20.0)
    assert not guard.admits(second, cold, 20.0 + IDLE_S - 11)
    late = make_turn(1, arrived_s=20.0 + IDLE_S, blocks=40)
    assert guard.admits(late, cold, 20.0 + IDLE_S)
    assert guard.live_blocks == 0


def test_a_running_turn_is_live_however_long_it_runs() -> None:
    guard = Guard(0.5, 100)
    turn = make_turn(0, blocks=40)
    guard.started(turn)
    guard.ended(turn, 0.0)
    guard.started(turn)
    assert not guard.admits(make_turn(1, 10_000.0, blocks=40), cold, 10_000.0)
    guard.ended(turn, 10_001.0)
    assert guard.live_blocks == 40


def test_nobody_is_held_back_beyond_patience() -> None:
    guard = Guard(0.5, 100)
    guard.started(make_turn(0, blocks=50))
    turn = make_turn(1, arrived_s=5.0)
    assert not guard.admits(turn, cold, 4.9 + PATIENCE_S)
    assert guard.admits(turn, cold, 5.0 + PATIENCE_S)


def test_an_idle_engine_serves_anybody() -> None:
    guard = Guard(0.5, 100)
    gone = make_turn(0, blocks=50)
    guard.started(gone)
    guard.ended(gone, 0.0)
    held = [make_turn(1)]
    assert allowed(guard, held, cold, 1.0, idle=False) == []
    assert allowed(guard, held, cold, 1.0, idle=True) == held
    assert allowed(None, held, cold, 1.0, idle=False) == held


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30), st.floats(0.0, 400.0)), min_size=1, max_size=40)
)
def test_the_live_working_set_adds_up(events: list[tuple[int, int, float]]) -> None:
    guard, now = Guard(1.0, 100), 0.0
    running: dict[int, Waiting] = {}
    latest: dict[int, tuple[int, float]] = {}
    for conversation, blocks, gap in events:
        now += gap
        if (turn := running.pop(conversation, None)) is not None:
            guard.ended(turn, now)
            latest[conversation] = (turn.blocks, now)
        else:
            turn = running[conversation] = Waiting(0, conversation, now, 1000, blocks)
            guard.started(turn)
        guard.admits(make_turn(99, arrived_s=now), cold, now)
        idle = {n: kept for n, (kept, end) in latest.items() if n not in running and end > now - IDLE_S}
        assert guard.live_blocks == sum(idle.values()) + sum(turn.blocks for turn in running.values())
