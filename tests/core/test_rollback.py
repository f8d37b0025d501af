"""What `rollback` learns of its clients, and what it does with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.policies.rollback import Rollback, RollbackDistribution, at_most
from flashstate.core.thread import Thread
from tests.core.host import Host, conversation

A, B = conversation(1, 300), conversation(2, 300)


def policy_of(host: Host) -> Rollback:
    assert isinstance(host.cache.policy, Rollback)
    return host.cache.policy


@pytest.mark.parametrize(
    ("tokens", "bucket"),
    [(-5, 0), (0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), (1 << 29, 30), (1 << 40, 31)],
)
def test_buckets_are_powers_of_two(tokens: int, bucket: int) -> None:
    distribution = RollbackDistribution()
    before = list(distribution.counts)
    distribution.add(tokens)
    changed = [i for i, (old, new) in enumerate(zip(before, distribution.counts, strict=True)) if old != new]
    assert changed == [bucket]


def test_the_prior_expects_exact_continuations() -> None:
    cumulative = RollbackDistribution().cumulative()
    assert cumulative[0] == pytest.approx(0.9)
    assert cumulative[-1] == pytest.approx(1.0)
    assert cumulative[1] - cumulative[0] == pytest.approx(0.1 / 31)


def test_chance_inside_a_bucket_is_linear() -> None:
    cumulative = (0.5, 0.6, 0.8, 1.0)
    expected = {-1: 0.0, 0: 0.5, 1: 0.6, 2: 0.7, 3: 0.8, 4: 0.85, 5: 0.9, 7: 1.0, 100: 1.0}
    for tokens, chance in expected.items():
        assert at_most(cumulative, tokens) == pytest.approx(chance), tokens


@given(st.lists(st.integers(0, 10**6)), st.integers(0, 10**6), st.integers(0, 10**6))
def test_chances_never_fall_with_distance(seen: list[int], a: int, b: int) -> None:
    distribution = RollbackDistribution()
    for tokens in seen:
        distribution.add(tokens)
    cumulative = distribution.cumulative()
    near, far = sorted((at_most(cumulative, a), at_most(cumulative, b)))
    assert 0.0 <= near <= far <= 1.0 + 1e-9


def test_chances_along_a_path_add_up() -> None:
    """Of the states of one unbranched path exactly one serves the next resume, or none if it rolls back to the root."""
    host = Host("rollback")
    ends = (10, 50, 80, 120)
    for end in ends:
        host.capture(A[:end])
    policy = policy_of(host)
    chances = [policy.chance(host.unit(A[:end])) for end in ends]
    cumulative = policy.distribution.cumulative()
    # 110 tokens or fewer back from the end at 120: at 10 or deeper.
    assert sum(chances) == pytest.approx(at_most(cumulative, 110))
    assert chances[-1] == pytest.approx(0.9)
    assert chances[2] == pytest.approx(at_most(cumulative, 40) - cumulative[0])


def test_a_branch_point_counts_in_full() -> None:
    host = Host("rollback")
    host.capture(A[:50])
    host.capture(A[:80])
    host.capture(A[:50] + B[:30])
    assert policy_of(host).chance(host.unit(A[:50])) == 1.0


def turn(host: Host, kept: list[int], added: int, first: int) -> list[int]:
    """A request that keeps `kept` and adds tokens of its own, and ends."""
    tokens = kept + conversation(first, added)
    request = f"r{first}"
    host.cache.learn(request, host.path(tokens), 0.0)
    host.cache.computed(request, host.path(tokens), len(tokens), 0.0)
    host.capture(tokens, request=request)
    host.cache.release(request, 0.0)
    return tokens


def test_superseded_states_are_kept_once_clients_prove_to_roll_back() -> None:
    host = Host("rollback")
    once = turn(host, [], 200, 0)
    twice = turn(host, once, 31, 1)
    superseded, newest = host.unit(once), host.unit(twice)
    policy = policy_of(host)
    assert policy.chance(superseded) < 0.05 < 0.8 < policy.chance(newest)
    assert host.cache.queue.peek(0.0) == (superseded, policy.rank(superseded, 0.0))
    # Clients now edit the last 31 tokens away before they go on.
    for _ in range(320):
        host.cache.learn("edit", host.path([*once, 7]), 0.0)
        host.cache.release("edit", 0.0)
    assert policy.chance(newest) < 0.05 < 0.8 < policy.chance(superseded)
    assert host.cache.queue.peek(0.0) == (newest, policy.rank(newest, 0.0))


def test_learning_is_published_in_epochs() -> None:
    policy = policy_of(Host("rollback"))
    published = policy._published
    for _ in range(31):
        assert not policy.learn(Thread(0.0), 20, 0, 0.0)
        assert policy._published is published
    assert policy.learn(Thread(0.0), 20, 0, 0.0)
    assert policy._published != published
    # With many units cached, ranking them all afresh must be rarer.
    answers = [policy.learn(Thread(0.0), 20, 100, 0.0) for _ in range(200)]
    assert [i for i, changed in enumerate(answers, 1) if changed] == [100, 200]


def test_the_cache_measures_rollbacks_from_the_last_request_end() -> None:
    host = Host("rollback")
    counts = policy_of(host).distribution.counts
    before = list(counts)
    turn(host, A[:40], 1, 5)  # nothing known yet: nothing learnt
    assert counts == before
    turn(host, A[:30], 1, 6)  # 30 tokens known, the request on it ended at 41
    assert counts[(41 - 30).bit_length()] == before[4] + 1
    turn(host, [*A[:30], 6], 5, 7)  # goes on exactly where the last one ended
    assert counts[0] == before[0] + 1
