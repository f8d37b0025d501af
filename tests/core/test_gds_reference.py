"""`gds` where states share nothing, against a plain GreedyDual-Size and against libCacheSim's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.host import Host

CAPACITY = 40
LENGTHS = (3, 5, 8, 13, 21, 34, 55, 60)
CHECKPOINTS = (1, 2, 4, 6, 10, 12, 16, 18)
keys = st.lists(st.integers(0, 7), max_size=80)


class PlainGreedyDualSize:
    """H = L + cost / size, set when an object comes or is used; L is the highest H evicted."""

    def __init__(self, cost: Callable[[int], float], size: Callable[[int], int]) -> None:
        self.cost, self.size = cost, size
        self.priority: dict[int, float] = {}
        self.watermark = 0.0

    def request(self, key: int) -> bool:
        hit = key in self.priority
        while not hit and sum(map(self.size, self.priority)) + self.size(key) > CAPACITY:
            victim = min(self.priority, key=self.priority.__getitem__)
            self.watermark = max(self.watermark, self.priority.pop(victim))
        self.priority[key] = self.watermark + self.cost(key) / self.size(key)
        return hit


class Independent:
    """One state a key, `LENGTHS[key]` tokens deep, in a block for each 4 and `CHECKPOINTS[key]` more."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self.host = Host("gds")
        self.lengths = lengths

    def size(self, key: int) -> int:
        return -(-self.lengths[key] // 4) + CHECKPOINTS[key]

    def request(self, key: int) -> bool:
        tokens = [key] * self.lengths[key]
        if self.host.resume("r", [*tokens, -1]):
            self.host.cache.release("r", 0.0)
            return True
        while self.host.cache.resident_blocks + self.size(key) > CAPACITY:
            self.host.evict()
        self.host.checkpoint = CHECKPOINTS[key]
        self.host.capture(tokens)
        return False

    def kept(self) -> set[int]:
        return {unit.node.piece.ids[0] for unit in self.host.cache.units()}


@given(keys)
def test_gds_equals_a_plain_greedy_dual_size(script: list[int]) -> None:
    ours = Independent(LENGTHS)
    plain = PlainGreedyDualSize(lambda key: float(LENGTHS[key]), ours.size)
    for key in script:
        assert ours.request(key) == plain.request(key)
        assert ours.kept() == set(plain.priority)
    assert ours.host.cache.policy.watermark == plain.watermark


def test_gds_equals_libcachesim() -> None:
    """Its GDSF multiplies by frequency, knows one cost and refuses newcomers: equal where none of that matters.

    Development only: libCacheSim is under the GPL.
    """
    libcachesim = pytest.importorskip("libcachesim", reason="pip install libcachesim to run this oracle")

    def make_request(key: int, size: int) -> Any:
        request = libcachesim.Request()
        request.obj_id, request.obj_size = key, size
        return request

    @given(keys)
    def agree(script: list[int]) -> None:
        ours, theirs = Independent((1,) * 8), libcachesim.GDSF(cache_size=CAPACITY, hashpower=10)
        for key in script:
            request = make_request(key, ours.size(key))
            hit = theirs.find(request, False) is not None
            if hit:
                theirs.remove(key)  # to forget how often it was used
            while theirs.get_occupied_byte() + request.obj_size > CAPACITY:
                theirs.evict(request)
            theirs.insert(request)
            assert ours.request(key) == hit
            found = {key for key in range(8) if theirs.find(make_request(key, 1), False) is not None}
            assert ours.kept() == found

    agree()


def test_lru_equals_libcachesim() -> None:
    """By size, where cachetools only counts."""
    libcachesim = pytest.importorskip("libcachesim", reason="pip install libcachesim to run this oracle")

    @given(keys)
    def agree(script: list[int]) -> None:
        ours, theirs = Independent((1,) * 8), libcachesim.LRU(cache_size=CAPACITY, hashpower=10)
        ours.host = Host("lru")
        for key in script:
            request = libcachesim.Request()
            request.obj_id, request.obj_size = key, ours.size(key)
            assert theirs.get(request) == ours.request(key)

    agree()
