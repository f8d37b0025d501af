"""Marconi's and HiState's ranks worked by hand: blocks of 4 tokens, checkpoints of 3 blocks, a second a token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.policies import PolicySettings, make_policy
from flashstate.core.policies.histate import HiState
from flashstate.core.policies.marconi import AGES_S, Marconi
from tests.core.host import Host, conversation

A, B, C = (conversation(first, 200) for first in (1, 2, 3))


def policy_of(host: Host) -> Marconi:
    assert isinstance(host.cache.policy, Marconi)
    return host.cache.policy


def score(host: Host, tokens: list[int], now: float) -> float:
    return policy_of(host).rank(host.unit(tokens), now)[1]


@pytest.mark.parametrize(
    ("age", "recency"),
    [(0.0, 1.0), (0.9, 1.0), (1.3, 1.0), (2.0, 0.5), (2.5, 0.5), (3.9, 8**-0.5), (5e3, 1 / 4096), (1e9, 1 / 8192)],
)  # fmt: skip
def test_recency_is_one_over_age_in_half_powers_of_two(age: float, recency: float) -> None:
    host = Host("marconi", marconi_alpha=0.0)
    host.capture(A[:8], 100.0)
    assert score(host, A[:8], 100.0 + age) == pytest.approx(recency)


def test_saving_is_seconds_a_block_over_the_range_of_the_candidates() -> None:
    host = Host("marconi", marconi_alpha=2.0)
    host.capture(A[:8], 0.0)  # 8 / 5
    host.capture(B[:40], 0.0)  # 40 / 13
    assert score(host, B[:40], 0.5) == 1.0  # no range is known yet
    policy_of(host).weigh()
    spread = 40 / 13 - 8 / 5
    assert score(host, A[:8], 0.5) == pytest.approx(1 + 2 * 8 / 5 / spread)
    assert score(host, B[:40], 0.5) == pytest.approx(1 + 2 * 40 / 13 / spread)
    # Held states and branch points are no candidates.
    host.capture(C[:100], 0.0)
    host.resume("r", C[:101], 0.0)
    policy_of(host).weigh()
    assert score(host, A[:8], 0.5) == pytest.approx(1 + 2 * 8 / 5 / spread)


def test_alpha_weighs_saving_against_recency() -> None:
    for alpha, goes in ((0.0, 40), (1.0, 8)):
        host = Host("marconi", marconi_alpha=alpha)
        host.capture(B[:40], 0.0)
        host.capture(A[:8], 9.0)
        policy_of(host).weigh()
        host.cache.queue.rebuild(host.cache.units(), 10.0)
        assert host.evict(10.0)[0] == goes  # type: ignore[index]


def test_branch_points_go_last() -> None:
    host = Host("marconi")
    host.capture(A[:8], 0.0)
    host.capture([*A[:8], 7, 7], 1.0)
    host.capture([*A[:8], 8, 8], 2.0)
    assert host.evict(100.0) == (10, 4)
    # Now it has one state below, and is the oldest.
    assert host.evict(100.0) == (8, 3)


def test_the_range_is_taken_once_in_as_many_requests_as_there_are_units() -> None:
    host = Host("marconi")
    for first in range(40):
        host.capture(conversation(first, 8 + first), 0.0)
    path = host.path([*conversation(0, 8), -1])
    host.cache.learn("first", path, 0.0)
    host.cache.computed("first", path, 8, 0.0)
    for number in range(39):
        host.cache.learn(f"r{number}", path, 0.0)
        host.cache.release(f"r{number}", 0.0)
    assert score(host, conversation(0, 8), 0.0) == 1.0
    host.cache.learn("last", path, 0.0)
    assert score(host, conversation(0, 8), 0.0) > 1.0


def test_states_of_a_cleared_cache_are_forgotten() -> None:
    host = Host("marconi", marconi_alpha=1.0)
    host.capture(A[:100], 0.0)
    host.capture(A[:120], 0.0)
    host.cache.clear()
    host.capture(B[:8], 0.0)
    policy_of(host).weigh()
    assert score(host, B[:8], 0.0) == 1.0  # one candidate: no range


@given(st.floats(0, 1e6), st.floats(0, 1e5))
def test_a_rank_changes_at_its_deadline_and_not_before(used: float, age: float) -> None:
    host = Host("marconi", marconi_alpha=0.0)
    host.capture(A[:8], used)
    policy, unit, now = policy_of(host), host.unit(A[:8]), used + age
    deadline = policy.deadline(unit, now)
    if deadline is None:
        assert now >= used + AGES_S[-1]
        return
    assert deadline > now
    assert policy.rank(unit, deadline) <= policy.rank(unit, now)
    after = policy.deadline(unit, deadline)
    assert after is None or after > deadline


def test_alpha_must_be_finite_and_not_negative() -> None:
    for alpha in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="Marconi alpha"):
            PolicySettings(marconi_alpha=alpha)


def test_histate_puts_the_last_access_off_by_the_saving() -> None:
    host = Host("histate")
    policy = host.cache.policy
    assert isinstance(policy, HiState)
    host.capture(A[:8], 50.0)
    assert policy.rank(host.unit(A[:8]), 99.0) == (50.0 + policy.weight_s * 8 / 5,)
    policy.weight_s = 0.0
    host.capture(B[:80], 40.0)
    assert host.evict(99.0) == (80, 23)


def test_histate_keeps_what_is_dear() -> None:
    host = Host("histate")
    policy = host.cache.policy
    assert isinstance(policy, HiState)
    policy.weight_s = 10.0
    host.capture(B[:80], 40.0)  # 80 / 23 seconds a block
    host.capture(A[:8], 50.0)  # 8 / 5
    assert host.evict(99.0) == (8, 5)


def test_both_are_policies_by_name() -> None:
    assert isinstance(make_policy("marconi"), Marconi)
    assert isinstance(make_policy("histate"), HiState)
