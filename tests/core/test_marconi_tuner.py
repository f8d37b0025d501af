"""Marconi's tuner: what it replays, and what it picks."""

from __future__ import annotations

import random
from itertools import count

import pytest

from flashstate.core import marconi_tuner
from flashstate.core.check import check_cache
from flashstate.core.marconi_tuner import ALPHAS, NewBlocks, Replay, TunedMarconiCache
from flashstate.core.policies import PolicySettings
from tests.core.host import ONE_SECOND_A_TOKEN, Host, conversation

CAPACITY = 80


def make_host(*, tuned: bool = True) -> Host:
    host = Host("marconi", marconi_alpha=0.0)
    if tuned:
        settings = PolicySettings(cost=ONE_SECOND_A_TOKEN)
        host.cache = TunedMarconiCache(block_tokens=4, history_tokens=10**9, settings=settings)
    return host


def tuner_of(host: Host) -> TunedMarconiCache:
    assert isinstance(host.cache, TunedMarconiCache)
    return host.cache


def run(host: Host, number: int, tokens: list[int]) -> int:
    """A request of `tokens`; where it resumed."""
    request, now = f"r{number}", 10.0 * number
    host.cache.learn(request, host.path([*tokens, -1]), now)
    resumed = host.resume(request, [*tokens, -1], now)
    host.capture(tokens, now + 1, request=request)
    host.cache.computed(request, host.path(tokens), len(tokens), now + 1)
    host.cache.release(request, now + 1)
    while host.cache.resident_blocks > CAPACITY:
        host.evict(now + 1)
    return resumed


def dear_among_cheap(host: Host, requests: int, first: int = 0) -> int:
    """Every tenth request goes on with one long conversation, the others with none. Hit tokens."""
    return sum(
        run(host, n, conversation(0, 160) if n % 10 == 0 else conversation(n + 1, 12))
        for n in range(first, first + requests)
    )


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chooses soon and often."""
    for name, value in (("BOOTSTRAP", 2), ("WINDOW", 60), ("EVERY", 30)):
        monkeypatch.setattr(marconi_tuner, name, value)


def test_alpha_is_0_until_the_first_choice() -> None:
    tuned, plain = make_host(), make_host(tuned=False)
    assert dear_among_cheap(tuned, 40) == dear_among_cheap(plain, 40) == 0
    assert tuned.held == plain.held
    assert tuner_of(tuned).marconi.alpha == 0.0


@pytest.mark.usefixtures("hasty")
def test_the_alpha_that_hits_most_is_taken() -> None:
    host = make_host()
    dear_among_cheap(host, 100)
    cache = tuner_of(host)
    cache._choose(1e3)
    hits = {alpha: cache._hit_tokens(alpha) for alpha in ALPHAS}
    assert hits[0.0] == 0
    assert cache.marconi.alpha == max(ALPHAS, key=hits.__getitem__) > 0
    # And then it hits here too.
    assert dear_among_cheap(host, 50, first=100) >= 4 * 160
    check_cache(cache, 1e4)


@pytest.mark.usefixtures("hasty")
def test_it_changes_its_mind() -> None:
    host = make_host()
    dear_among_cheap(host, 100)
    assert tuner_of(host).marconi.alpha > 0
    # Long conversations that never come back, and short ones that do: saving misleads.
    for n in range(100, 300):
        run(host, n, conversation(n, 100) if n % 2 else conversation(-1 - n % 8, 12))
    assert tuner_of(host).marconi.alpha < 2


@pytest.mark.usefixtures("hasty")
def test_no_more_than_the_window_is_remembered() -> None:
    host = make_host()
    dear_among_cheap(host, 200)
    starts = [starts for starts, _ in tuner_of(host)._log]
    assert sum(starts) == 60
    tuner_of(host).clear()
    assert not tuner_of(host)._log


def test_a_replay_counts_blocks_as_a_cache_does() -> None:
    dice, host = random.Random(1), make_host()
    talks = [conversation(first, 5) for first in range(5)]
    for number in range(80):
        talk = dice.choice(talks)
        talk += [dice.randrange(1000) for _ in range(dice.randrange(1, 12))]
        run(host, number, talk)
    replay = Replay(4, PolicySettings(cost=ONE_SECOND_A_TOKEN, marconi_alpha=0.5), 1)
    for _, event in tuner_of(host)._log:
        event(replay)
        check_cache(replay, 1e4)
    assert 0 < replay.resident_blocks <= CAPACITY
    assert replay.hit_tokens > 0


def test_new_blocks_are_made_as_they_are_asked_for() -> None:
    blocks = NewBlocks(count(), 5, 2)
    assert (len(blocks), blocks[1:3], blocks[0], blocks[9:]) == (5, [(0, 1), (2, 3)], (4, 5), [])
