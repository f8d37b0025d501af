"""What every policy owes the cache."""

from __future__ import annotations

import random

import pytest

from flashstate.core.check import check_cache
from flashstate.core.policies import PolicySettings, make_policy, policy_names
from flashstate.core.policies.base import Policy
from tests.core.host import Host, conversation

BY_LAST_USE = ("lru", "marconi")
every_policy = pytest.mark.parametrize("name", policy_names())


def busy(name: str, seed: int = 0) -> Host:
    """A cache after some dozens of turns of several conversations."""
    host, dice = Host(name), random.Random(seed)
    talks = [conversation(first, 5) for first in range(6)]
    for turn in range(60):
        talk = dice.choice(talks)
        del talk[len(talk) - dice.choice([0, 0, 0, min(len(talk) - 1, 7)]) :]
        talk += [dice.randrange(1000) for _ in range(dice.randrange(1, 30))]
        request = f"r{turn}"
        host.cache.learn(request, host.path(talk[:-1]), turn)
        host.cache.computed(request, host.path(talk), len(talk), turn, hint=turn % 3)
        host.capture(talk, turn, room=dice.random() < 0.5, request=request)
        host.cache.release(request, turn)
    return host


@every_policy
def test_everything_can_be_evicted_and_every_block_comes_back(name: str) -> None:
    host = busy(name)
    assert len(host.cache) > 10
    while host.evict(100.0) is not None:
        check_cache(host.cache, 100.0)
        assert host.cache.resident_blocks == len(host.held)
    assert not host.held
    assert len(host.cache) == 0
    assert not host.cache.tree.roots


@every_policy
def test_the_same_events_give_the_same_victims(name: str) -> None:
    one, two = busy(name), busy(name)
    while (victim := one.evict(100.0)) is not None:
        assert two.evict(100.0) == victim
    assert two.evict(100.0) is None


@every_policy
def test_the_victim_has_the_lowest_rank(name: str) -> None:
    host = busy(name)
    for now in range(60, 200, 10):
        ranks = {unit: (host.cache.policy.rank(unit, now), unit.serial) for unit in host.cache.units()}
        victim = host.cache.queue.peek(now)
        assert victim is not None
        assert ranks[victim[0]] == min(ranks.values())
        host.evict(now)


@every_policy
def test_ranking_changes_nothing(name: str) -> None:
    host = busy(name)
    policy = host.cache.policy
    first = [policy.rank(unit, 100.0) for unit in host.cache.units()]
    assert first == [policy.rank(unit, 100.0) for unit in host.cache.units()]


@every_policy
def test_held_states_outlive_all_others(name: str) -> None:
    host = Host(name)
    for first in range(4):
        host.capture(conversation(first, 20 + first))
    assert host.resume("r", conversation(2, 30), 1.0) == 22
    assert 22 not in [host.evict(1e6)[0] for _ in range(3)]  # type: ignore[index]
    host.cache.release("r", 1e6)
    assert host.evict(1e6) == (22, 3 + 6)


@every_policy
def test_parked_states_outlive_all_that_nobody_waits_for(name: str) -> None:
    host = Host(name)
    for first in range(4):
        host.capture(conversation(first, 20 + first))
    host.cache.park("r", host.unit(conversation(1, 21)), 1.0)
    assert 21 not in [host.evict(1e6)[0] for _ in range(3)]  # type: ignore[index]
    # But the cache never runs dry on account of a waiting request.
    assert host.evict(1e6) == (21, 3 + 6)
    host.cache.unpark("r", 1e6)


@every_policy
@pytest.mark.parametrize("newcomer", [conversation(77, 3), conversation(1, 2)], ids=["apart", "inside"])
def test_a_refused_newcomer_leaves_no_trace(name: str, newcomer: list[int]) -> None:
    host = Host(name)
    host.capture(conversation(1, 100))
    held = set(host.held)
    got = host.capture(newcomer, room=False)
    # By last use alone a newcomer is the last to go.
    assert got.kept == (name in BY_LAST_USE)
    if not got.kept:
        assert (got.taken, got.freed, host.held) == (frozenset(), frozenset(), held)
        assert (host.cache.resident_blocks, len(host.cache)) == (len(held), 1)
    check_cache(host.cache, 0.0)


@every_policy
def test_a_name_makes_its_policy(name: str) -> None:
    policy = make_policy(name)
    assert policy.name == name
    assert isinstance(policy, Policy)
    assert policy.watermark == 0.0


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'mru': unknown; one of .*gds.*rollback"):
        make_policy("mru")


def test_settings_refuse_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="leaf idle seconds -1"):
        PolicySettings(leaf_idle_s=-1)
    with pytest.raises(ValueError, match="superseded turns -2"):
        PolicySettings(keep_superseded_turns=-2)
