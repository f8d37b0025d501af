"""Whole-state LRU against `cachetools.LRUCache`, where both mean the same: units of equal size that share nothing."""

from __future__ import annotations

from cachetools import LRUCache
from hypothesis import given
from hypothesis import strategies as st

from tests.core.host import Host

CAPACITY = 4
BLOCKS_A_UNIT = 2

operations = st.lists(st.tuples(st.sampled_from(["get", "put"]), st.integers(0, 9)), max_size=60)


@given(operations)
def test_lru_equals_cachetools(script: list[tuple[str, int]]) -> None:
    host = Host("lru", block=1, checkpoint=1)
    reference: LRUCache[int, int] = LRUCache(CAPACITY)
    for now, (operation, key) in enumerate(script):
        path = [key, -1]
        if operation == "get":
            assert (host.resume("r", path, now) == 1) == (reference.get(key) is not None)
            host.cache.release("r", now)
        else:
            host.capture([key], now)
            reference[key] = key
            if host.cache.resident_blocks > CAPACITY * BLOCKS_A_UNIT:
                host.evict(now)
        kept = {unit.node.piece.ids[0] for unit in host.cache.units()}
        assert kept == set(reference)
