"""The queues: the order of a plain scan, at a small part of its work."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from flashstate.core.base import Eviction
from flashstate.core.cache import HybridCache
from flashstate.core.check import check_cache
from flashstate.core.grouped_queue import GroupedQueue, make_queue
from flashstate.core.path import Tokens
from flashstate.core.policies import PolicySettings, make_policy, policy_names
from flashstate.core.policies.base import ThreadedPolicy
from flashstate.core.policies.hazard import Hazard
from flashstate.core.state import PROMPT_END, REQUEST_END, Checkpoint, RecoveryUnit
from flashstate.core.thread import Thread
from tests.core.host import ONE_SECOND_A_TOKEN, Host, conversation
from tests.core.scan import ScanQueue

BLOCK, MOST_STATES = 4, 40
HINTS = ("tool_use", "end_turn", None)
threaded_names = [name for name in policy_names() if isinstance(make_policy(name), ThreadedPolicy)]


def make_cache(name: str) -> HybridCache:
    policy = make_policy(name, PolicySettings(cost=ONE_SECOND_A_TOKEN, leaf_idle_s=30.0))
    return HybridCache(block_tokens=BLOCK, policy=policy, history_tokens=10**9)


class Life:
    """Some conversations under one system prompt: they run together, wait, turn back, stop, and are forgotten."""

    def __init__(self, cache: HybridCache, seed: int) -> None:
        self.cache, self.dice, self.now = cache, random.Random(seed), 0.0
        self.blocks = iter(range(10**9))
        self.talks: list[list[int]] = [[7] * 6 for _ in range(12)]
        self.running: dict[str, list[int]] = {}

    def steps(self, count: int) -> Iterator[Eviction | bool | None]:
        """What became of every state offered, and every eviction."""
        for number in range(count):
            self.now += self.dice.choice([0.1, 0.5, 2.0, 2.0, 16.0, 300.0 if number % 50 == 0 else 1.0])
            if len(self.running) < 3 and self.dice.random() < 0.6:
                yield from self._begin(f"r{number}")
            elif self.running:
                yield from self._end(self.dice.choice(list(self.running)))
            while len(self.cache) > MOST_STATES:
                yield self.cache.evict(self.now)

    def _begin(self, request: str) -> Iterator[bool]:
        dice, talk = self.dice, self.dice.choice(self.talks)
        del talk[len(talk) - dice.choice([0, 0, 0, 1, min(9, len(talk) - 6), len(talk) - 6]) :]
        talk += [dice.randrange(1000) for _ in range(dice.randrange(1, 12))]
        path = Tokens(list(talk), BLOCK)
        state = self.cache.lookup(path, len(path) - 1)
        if state is not None and dice.random() < 0.2:
            self.cache.park(request, state.unit, self.now)
            if dice.random() < 0.3:
                return
        self.cache.learn(request, path, self.now)
        self.cache.admit(request, path, state.position if state else 0, self.now)
        self.running[request] = talk
        if dice.random() < 0.3:
            yield self._offer(request, talk[:-1], PROMPT_END)

    def _end(self, request: str) -> Iterator[bool]:
        talk = self.running.pop(request)
        if self.dice.random() < 0.9:
            talk += [self.dice.randrange(1000) for _ in range(self.dice.randrange(1, 12))]
            path, hint = Tokens(list(talk), BLOCK), self.dice.choice(HINTS)
            self.cache.computed(request, path, len(path), self.now, hint)
            yield self._offer(request, talk, REQUEST_END)
        self.cache.release(request, self.now)

    def _offer(self, request: str, tokens: list[int], kind: str) -> bool:
        kv = [(next(self.blocks),) for _ in range(-(-len(tokens) // BLOCK))]
        checkpoint = Checkpoint(len(tokens), (next(self.blocks), next(self.blocks)), kind)
        # Some come from a host that names no request: units without a thread.
        named = request if self.dice.random() < 0.8 else None
        path, room = Tokens(list(tokens), BLOCK), self.dice.random() < 0.7
        return self.cache.capture(path, checkpoint, kv, self.now, room=room, request=named).kept


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", policy_names())
def test_the_victims_are_those_of_a_scan(name: str, seed: int) -> None:
    quick, plain = make_cache(name), make_cache(name)
    plain.queue = ScanQueue(plain.policy)
    count = 0
    for found, expected in zip(Life(quick, seed).steps(500), Life(plain, seed).steps(500), strict=True):
        assert found == expected, count
        count += isinstance(found, Eviction)
    assert count > 100
    check_cache(quick, 1e4)


def make_talks(name: str, talks: int, turns: int) -> Host:
    """So many conversations, a second apart, each of so many turns."""
    host = Host(name)
    for first in range(talks):
        for turn in range(1, turns + 1):
            tokens, request = conversation(first, 20 * turn), f"{first}/{turn}"
            host.cache.learn(request, host.path(tokens[:-1]), float(first))
            host.cache.computed(request, host.path(tokens), len(tokens), float(first), "stop")
            host.capture(tokens, float(first), request=request)
            host.cache.release(request, float(first))
    return host


def test_a_policy_gets_the_queue_that_suits_it() -> None:
    assert threaded_names == ["forecast", "hazard"]
    for name in policy_names():
        assert isinstance(make_queue(make_policy(name)), GroupedQueue) == (name in threaded_names)


@pytest.mark.parametrize("name", threaded_names)
def test_time_alone_costs_little(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence passes 21 ages here: a queue that looked at 40 units at each would do so 840 times."""
    host, asked = make_talks(name, talks=40, turns=1), [0, 0]
    host.capture(conversation(99, 2), 40.0)
    weight, lowest = Hazard.weight, Hazard.lowest

    def count_weight(policy: Hazard, unit: RecoveryUnit) -> float:
        asked[0] += 1
        return weight(policy, unit)

    def count_lowest(
        policy: Hazard, owner: Thread | RecoveryUnit, now: float, least: float
    ) -> tuple[float, float | None]:
        asked[1] += 1
        return lowest(policy, owner, now, least)

    host.cache.queue.peek(100.0)
    monkeypatch.setattr(Hazard, "weight", count_weight)
    monkeypatch.setattr(Hazard, "lowest", count_lowest)
    peeks = 490
    assert all(host.cache.queue.peek(100.0 + 10 * number) for number in range(peeks))
    # Each peek looks at the first unit. The others, worth five times as much, come up now and then.
    assert asked[0] <= peeks + 40
    assert asked[1] <= peeks + 40 * 8


def test_a_use_may_lower_the_rank_of_a_unit_alone() -> None:
    host = Host("hazard")
    policy = host.cache.policy
    assert isinstance(policy, Hazard)
    for _ in range(1000):
        thread = Thread(0.0)
        policy.returns.begin(thread)
        policy.returns.finish(thread, 100.0)
    policy.returns.publish(100.0)
    cheap, dear = conversation(1, 4), conversation(2, 200)
    host.capture(cheap, now=1000.0)
    # About to come back, it is worth a lot; used just now, less.
    assert policy.factor(host.unit(cheap), 1095.0) > 5 * policy.factor(host.unit(cheap), 1000.0)
    assert host.cache.queue.peek(1095.0) is not None
    host.capture(cheap, now=1095.0)
    host.capture(dear, now=1095.0)
    assert host.cache.queue.peek(1095.0)[0] is host.unit(cheap)  # type: ignore[index]


@pytest.mark.parametrize("name", policy_names())
def test_stale_entries_stay_few(name: str) -> None:
    host = make_talks(name, talks=20, turns=2)
    queue, unit = host.cache.queue, host.cache.units()[0]
    for now in range(2_000):
        queue.push(unit, 20.0 + now)
    most = queue.SLACK + 10 * len(queue)
    if isinstance(queue, GroupedQueue):
        units = sum(len(group.heap) for group in queue._groups.values())
        assert units + len(queue._queue) + len(queue._bells) <= most
    else:
        assert len(queue._heap) + len(queue._timers) <= most


@pytest.mark.parametrize("name", threaded_names)
def test_a_thread_without_units_is_forgotten(name: str) -> None:
    host = make_talks(name, talks=20, turns=2)
    queue = host.cache.queue
    assert isinstance(queue, GroupedQueue)
    assert len(queue._groups) == 20
    while host.evict(100.0) is not None:
        pass
    assert queue.peek(101.0) is None
    assert not queue._groups
    assert not queue._queue


def test_a_check_notices_a_rank_that_fell_unseen() -> None:
    for name in threaded_names:
        host = make_talks(name, talks=3, turns=2)
        check_cache(host.cache, 3.0)
        host.cache.policy.density = lambda unit: 1e-9  # type: ignore[attr-defined]
        with pytest.raises(AssertionError, match="above its rank"):
            check_cache(host.cache, 3.0)


def test_a_check_notices_an_age_that_passed_unseen() -> None:
    host = make_talks("forecast", talks=3, turns=2)
    queue = host.cache.queue
    assert isinstance(queue, GroupedQueue)
    host.evict(3.0)
    check_cache(host.cache, 4000.0)
    queue._bells.clear()
    with pytest.raises(AssertionError, match="above its rank"):
        check_cache(host.cache, 4000.0)
