"""`TwoPoolCache` worked by hand: blocks of 512 tokens, which hold two multiples of 256."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from flashstate.core.base import Capture
from flashstate.core.check import check_cache
from flashstate.core.path import Tokens
from flashstate.core.state import CHUNK_END, REQUEST_END, Checkpoint
from flashstate.core.two_pools import TwoPoolCache
from tests.core.host import conversation

BLOCK = 512
A, B, C = (conversation(first, 4000) for first in (1, 2, 3))


class Host:
    def __init__(self, slots: int, slots_a_request: int = 3) -> None:
        self.cache = TwoPoolCache(
            block_tokens=BLOCK, history_tokens=10**9, slots=slots, slots_a_request=slots_a_request
        )
        self.held: set[int] = set()
        self._ids = count()

    def start(self, request: str, prompt: Sequence[int]) -> int:
        path = Tokens(prompt, BLOCK)
        state = self.cache.lookup(path, len(prompt) - 1)
        resumed = state.position if state is not None else 0
        self.cache.admit(request, path, resumed, 0.0)
        return resumed

    def capture(self, tokens: Sequence[int], kind: str = CHUNK_END) -> Capture:
        kv = [(next(self._ids),) for _ in range(-(-len(tokens) // BLOCK))]
        checkpoint = Checkpoint(len(tokens), (), kind)
        got = self.cache.capture(Tokens(tokens, BLOCK), checkpoint, kv, 0.0, room=True)
        assert not got.taken & self.held
        assert got.freed <= self.held
        self.held = (self.held | got.taken) - got.freed
        check_cache(self.cache, 0.0)
        assert len(self.held) == self.cache.resident_blocks
        return got

    def evict(self) -> tuple[int, int] | None:
        eviction = self.cache.evict(0.0)
        if eviction is None:
            return None
        self.held -= eviction.freed
        check_cache(self.cache, 0.0)
        return eviction.position, len(eviction.freed)

    def positions(self, tokens: Sequence[int]) -> list[int]:
        path = Tokens(tokens, BLOCK)
        return [n for n in range(256, len(tokens) + 1, 256) if self.at(path, n)]

    def at(self, path: Tokens, position: int) -> bool:
        state = self.cache.lookup(path, position)
        return state is not None and state.position == position


def test_a_request_that_ends_leaves_the_last_state_tracked() -> None:
    host = Host(slots=10)
    assert len(host.capture(A[:1300], REQUEST_END).taken) == 3
    assert host.positions(A) == [1280]
    assert host.capture(A[:1400], REQUEST_END).kept is False  # 1,280 again
    assert host.capture(B[:255], REQUEST_END) == Capture(False, frozenset(), frozenset())
    assert len(host.cache) == 1


def test_for_want_of_a_state_the_oldest_goes_the_shallower_first() -> None:
    host = Host(slots=3)
    host.capture(A[:512])
    host.capture(A[:1024])
    host.capture(B[:512])
    # Going on from 1,024 uses both states of A.
    host.start("r", A[:1100])
    host.cache.release("r", 0.0)
    got = host.capture(C[:512])
    assert (len(got.taken), len(got.freed)) == (1, 1)
    assert (host.positions(A), host.positions(B), host.positions(C)) == ([512, 1024], [], [512])
    # Between two others a state goes alone.
    assert host.capture(B[:256]).freed == frozenset()
    assert host.positions(A) == [1024]


def test_running_requests_take_slots() -> None:
    host = Host(slots=4)
    host.capture(A[:512])
    host.capture(B[:512])
    assert host.start("r", A[:600]) == 512
    # 3 of 4 slots: one state is left, and what "r" resumed from is held.
    host.capture(C[:512])
    assert (host.positions(A), host.positions(B), host.positions(C)) == ([512], [], [])
    host.cache.release("r", 0.0)
    host.capture(C[:512])
    assert (host.positions(A), host.positions(C)) == ([512], [512])


def test_for_want_of_kv_the_leaf_used_longest_ago_goes_with_its_state() -> None:
    host = Host(slots=10)
    host.capture(A[:512])
    host.capture(A[:1536])
    host.capture(B[:512])
    assert host.evict() == (1536, 2)
    # A leaf again, and older than B's.
    assert host.evict() == (512, 1)
    assert host.evict() == (512, 1)
    assert host.evict() is None
    assert host.held == set()
    assert host.cache.counters.evictions == {"leaf": 3}


def test_kv_that_running_requests_need_stays() -> None:
    host = Host(slots=10)
    host.capture(A[:512])
    host.capture(B[:512])
    host.start("r", A[:600])
    assert host.evict() == (512, 1)
    assert host.evict() is None
    assert host.positions(A) == [512]
    host.cache.release("r", 0.0)
    assert host.evict() == (512, 1)


def test_using_a_leaf_puts_it_last() -> None:
    host = Host(slots=10)
    host.capture(A[:512])
    host.capture(B[:512])
    host.start("r", A[:600])
    host.cache.release("r", 0.0)
    assert host.positions(A) == [512]
    host.evict()
    assert (host.positions(A), host.positions(B)) == ([512], [])
