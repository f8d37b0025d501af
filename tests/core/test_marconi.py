"""Marconi's and HiState's ranks worked by hand: blocks of 4 tokens, checkpoints of 3 blocks, a second a token."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.policies import PolicySettings, make_policy
from flashstate.core.policies.histate import HiState
from flashstate.core.policies.marconi import UNITS_A_REQUEST, Marconi
from tests.core.host import Host, conversation

A, B, C = (conversation(first, 200) for first in (1, 2, 3))


def policy_of(host: Host) -> Marconi:
    assert isinstance(host.cache.policy, Marconi)
    return host.cache.policy


def score(host: Host, tokens: list[int], now: float) -> float:
    return policy_of(host).rank(host.unit(tokens), now)[1]


def test_before_the_ranges_are_known_the_last_use_is_all() -> None:
    host = Host("marconi", marconi_alpha=2.0)
    host.capture(B[:40], 3.0)
    host.capture(A[:8], 5.0)
    assert (score(host, B[:40], 9.0), score(host, A[:8], 9.0)) == (3.0, 5.0)


def test_alpha_times_the_range_of_savings_weighs_as_much_as_that_of_last_uses() -> None:
    host = Host("marconi", marconi_alpha=2.0)
    host.capture(A[:8], 10.0)  # 8 / 5 seconds a block
    host.capture(B[:40], 30.0)  # 40 / 13
    policy_of(host).weigh()
    # By the paper: (last use - least) / range + alpha * (saving - least) / range, which is 0 and 1 + alpha.
    apart = score(host, B[:40], 50.0) - score(host, A[:8], 50.0)
    assert apart == pytest.approx((30 - 10) * (1 + 2))
    # Held states and branch points are no candidates.
    host.capture(C[:100], 100.0)
    host.resume("r", C[:101], 200.0)
    policy_of(host).weigh()
    assert score(host, B[:40], 250.0) - score(host, A[:8], 250.0) == pytest.approx(apart)


def test_alpha_weighs_saving_against_recency() -> None:
    for alpha, goes in ((0.0, 40), (0.9, 40), (1.1, 8)):
        host = Host("marconi", marconi_alpha=alpha)
        host.capture(B[:40], 0.0)
        host.capture(A[:8], 9.0)
        policy_of(host).weigh()
        host.cache.queue.rebuild(host.cache.units(), 10.0)
        assert host.evict(10.0)[0] == goes  # type: ignore[index]


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 1000)), min_size=1, max_size=12, unique_by=lambda x: x[0]),
    st.sampled_from([0.0, 0.5, 1.0, 1.5, 8.0]),
)  # fmt: skip
def test_the_order_is_that_of_the_papers_scores(states: list[tuple[int, int]], alpha: float) -> None:
    host = Host("marconi", marconi_alpha=alpha)
    for first, (blocks, used) in enumerate(states):
        host.capture(conversation(first, 4 * blocks), float(used))
    policy, units = policy_of(host), list(host.cache.units())
    policy.weigh()
    uses, savings = [u.last_use_s for u in units], [policy.saving(u) for u in units]

    def scaled(value: float, of: list[float]) -> float:
        return (value - min(of)) / (max(of) - min(of)) if max(of) > min(of) else 0.0

    scores = [scaled(u.last_use_s, uses) + alpha * scaled(policy.saving(u), savings) for u in units]
    ranks = [policy.rank(unit, 2000.0) for unit in units]
    for a, b in combinations(range(len(units)), 2):
        if abs(scores[a] - scores[b]) > 1e-9 and max(uses) > min(uses):
            assert (scores[a] < scores[b]) == (ranks[a] < ranks[b])


def test_branch_points_go_last() -> None:
    host = Host("marconi")
    host.capture(A[:8], 0.0)
    host.capture([*A[:8], 7, 7], 1.0)
    host.capture([*A[:8], 8, 8], 2.0)
    assert host.evict(100.0) == (10, 4)
    # Now it has one state below, and is the oldest.
    assert host.evict(100.0) == (8, 3)


def test_the_ranges_are_taken_more_rarely_the_more_units_there_are() -> None:
    host = Host("marconi")
    for first in range(2 * UNITS_A_REQUEST + 1):
        host.capture(conversation(first, 8 + first), float(first))
    path = host.path([*conversation(0, 8), -1])
    host.cache.learn("first", path, 0.0)  # learns nothing: no conversation came this way
    host.cache.computed("first", path, 8, 0.0)
    scales = []
    for number in range(6):
        host.cache.learn(f"r{number}", path, 0.0)
        host.cache.release(f"r{number}", 0.0)
        scales.append(policy_of(host).seconds_a_saving > 0)
        policy_of(host).seconds_a_saving = 0.0
    assert scales == [False, False, True, False, False, True]


def test_states_of_a_cleared_cache_are_forgotten() -> None:
    host = Host("marconi", marconi_alpha=1.0)
    host.capture(A[:100], 0.0)
    host.capture(A[:120], 0.0)
    host.cache.clear()
    host.capture(B[:8], 0.0)
    policy_of(host).weigh()
    assert policy_of(host).seconds_a_saving == 0.0  # one candidate: no range


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
