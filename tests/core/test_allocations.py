"""`AllocationCache` worked by hand, and against `cachetools.LRUCache` where both mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from cachetools import LRUCache
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.allocations import AllocationCache
from flashstate.core.path import Tokens
from flashstate.core.state import REQUEST_END, Checkpoint
from tests.core.host import conversation

BLOCK, CHECKPOINT = 4, 3
A, B = conversation(1, 100), conversation(2, 100)
CAPACITY = 4
operations = st.lists(st.tuples(st.sampled_from(["get", "put"]), st.integers(0, 9)), max_size=60)


class Host:
    """Runs requests one at a time, in blocks of 4 tokens; a checkpoint takes 3."""

    def __init__(self, block: int = BLOCK, checkpoint: int = CHECKPOINT) -> None:
        self.block, self.checkpoint = block, checkpoint
        self.cache = AllocationCache(block_tokens=block, history_tokens=10**9)
        self._ids = count()

    def start(self, request: str, prompt: Sequence[int], total: int | None = None) -> int:
        """Where `request` resumes. Its blocks, for `total` tokens in all, are the ones `kv` returns."""
        path, limit = Tokens(prompt, self.block), len(prompt) - 1
        state = self.cache.lookup(path, limit)
        resumed = state.position if state is not None else 0
        self.observed = self.cache.observe(path, resumed)
        self.cache.admit(request, path, resumed, 0.0)
        self.kv = self.cache.resident(path, limit)
        if state is not None and state.is_open and len(state.kv) > len(self.kv):
            self.kv.append(state.kv[-1])
        self.kv += [
            (next(self._ids),) for _ in range(-(-(total or len(prompt)) // self.block) - len(self.kv))
        ]
        return resumed

    def offer(self, request: str, tokens: Sequence[int], position: int, kind: str = REQUEST_END) -> bool:
        checkpoint = Checkpoint(position, tuple(next(self._ids) for _ in range(self.checkpoint)), kind)
        kv = self.kv[: -(-position // self.block)]
        path = Tokens(tokens, self.block)
        return self.cache.capture(path, checkpoint, kv, 0.0, room=True, request=request).kept

    def run(self, tokens: Sequence[int], *spots: int) -> int:
        """A whole request: leaves checkpoints at `spots`. Where it resumed."""
        resumed = self.start("r", tokens)
        for spot in spots:
            self.offer("r", tokens, spot)
        self.finish("r", tokens)
        return resumed

    def finish(self, request: str, tokens: Sequence[int]) -> None:
        path = Tokens(tokens, self.block)
        self.cache.file_kv(path, len(tokens), self.kv, 0.0, request=request)
        self.cache.computed(request, path, len(tokens), 0.0)
        self.cache.release(request, 0.0)

    def evict(self) -> tuple[str, int, int] | None:
        """Kind, position and blocks of what went."""
        eviction = self.cache.evict(0.0)
        return None if eviction is None else (eviction.tier, eviction.position, len(eviction.freed))


def test_the_deepest_block_goes_first_and_the_checkpoint_written_before_it() -> None:
    host = Host()
    host.run(A[:12], 8)
    assert host.cache.resident_blocks == 3 + CHECKPOINT
    assert [host.evict() for _ in range(5)] == [
        ("checkpoint", 8, 3), ("kv", 12, 1), ("kv", 8, 1), ("kv", 4, 1), None
    ]  # fmt: skip
    assert host.cache.resident_blocks == 0
    assert host.cache.counters.evictions == {"checkpoint": 1, "kv": 3}


def test_only_full_blocks_are_kept_where_no_checkpoint_ends_inside_one() -> None:
    host = Host()
    host.run(A[:11], 8)
    assert host.cache.resident_blocks == 2 + CHECKPOINT
    assert host.cache.resident_tokens(Tokens(A, BLOCK), 100) == 8
    host.run(B[:11], 8, 11)
    assert host.cache.resident_tokens(Tokens(B, BLOCK), 100) == 11
    assert host.cache.resident_blocks == 2 + CHECKPOINT + 3 + 2 * CHECKPOINT


def test_resuming_uses_the_checkpoint_and_the_request_uses_its_kv() -> None:
    host = Host()
    host.run(A[:9], 8)
    host.run(B[:9], 8)
    assert host.run([*A[:9], 0]) == 8
    assert [host.evict() for _ in range(3)] == [("checkpoint", 8, 3), ("kv", 8, 1), ("kv", 4, 1)]
    assert host.cache.lookup(Tokens(A, BLOCK), 99) is not None
    assert host.cache.lookup(Tokens(B, BLOCK), 99) is None


def test_an_exact_continuation_fills_the_block_on_and_a_branch_gets_a_copy() -> None:
    host = Host()
    host.run(A[:6], 6)
    end = host.kv[1]
    assert host.run(A[:11], 11) == 6
    assert host.kv[1] == end
    held = host.cache.resident_blocks
    assert held == 3 + 2 * CHECKPOINT
    # A branch at 6: the block now holds other tokens after it.
    assert host.run([*A[:6], 7, 7, 7], 9) == 6
    assert host.kv[1] != end
    assert host.cache.resident_blocks == held + 2 + CHECKPOINT


def test_one_of_two_that_go_on_at_once_gets_the_copy() -> None:
    host = Host()
    host.run(A[:6], 6)
    end = host.kv[1]
    assert host.start("one", A[:9]) == 6
    assert host.kv[1] == end
    assert host.start("two", [*A[:6], 7, 7, 7]) == 6
    assert host.kv[1] != end


def test_a_checkpoint_whose_last_block_is_gone_is_not_found() -> None:
    host = Host()
    host.run(A[:6], 6)
    host.run(A[:8], 8)
    # Preempted: it has used the checkpoint at 6 and the first block, but not the second.
    assert host.start("r", [*A[:6], 7, 7, 7]) == 6
    host.cache.release("r", 0.0)
    assert [host.evict() for _ in range(2)] == [("checkpoint", 8, 3), ("kv", 8, 1)]
    path = Tokens([*A[:6], 5, 5], BLOCK)
    assert host.cache.lookup(path, 7) is None
    # Computed again, the block serves it again.
    host.run([*A[:6], 7, 7, 7])
    assert host.cache.lookup(path, 7) is not None


def test_kv_without_its_checkpoint_is_a_dependency_miss() -> None:
    host = Host()
    host.run(A[:12], 8)
    assert host.evict() == ("checkpoint", 8, 3)
    assert host.run([*A[:12], 0]) == 0
    assert host.observed.missed_tokens == {"placement": 4, "capacity": 0, "dependency": 8}


def test_a_checkpoint_whose_kv_is_gone_is_a_capacity_miss() -> None:
    host = Host()
    host.run(A[:12], 12)
    assert [host.evict() for _ in range(2)] == [("checkpoint", 12, 3), ("kv", 12, 1)]
    host.run([*A[:12], 0])
    assert host.observed.missed_tokens == {"placement": 0, "capacity": 12, "dependency": 0}


def test_live_requests_keep_their_kv() -> None:
    host = Host()
    host.start("r", A[:9])
    host.offer("r", A[:9], 8)
    assert [host.evict() for _ in range(2)] == [("checkpoint", 8, 3), None]
    host.finish("r", A[:9])
    assert [host.evict() for _ in range(3)] == [("kv", 8, 1), ("kv", 4, 1), None]


def test_a_block_computed_again_is_the_same_block() -> None:
    host = Host()
    host.run(A[:9], 8)
    assert host.evict() == ("checkpoint", 8, 3)
    first = host.kv[:2]
    assert host.run(A[:9], 8) == 0
    assert host.kv[:2] == first
    assert host.cache.resident_blocks == 2 + CHECKPOINT


def test_requests_a_host_does_not_name_are_kept_too() -> None:
    cache = AllocationCache(block_tokens=4, history_tokens=10**9)
    got = cache.capture(Tokens(A, 4), Checkpoint(6, (7, 8), REQUEST_END), [(1,), (2,)], 0.0, room=False)
    assert (got.kept, got.taken) == (True, {1, 2, 7, 8})
    state = cache.lookup(Tokens(A, 4), 99)
    assert state is not None
    assert (state.position, state.kv, state.is_open) == (6, ((1,), (2,)), True)
    again = cache.capture(Tokens(A, 4), Checkpoint(6, (3, 4), REQUEST_END), [(1,), (2,)], 0.0, room=False)
    assert (again.kept, again.taken, again.freed) == (False, frozenset(), frozenset())


def test_namespaces_never_match() -> None:
    host = Host()
    host.run(A[:9], 8)
    assert host.cache.lookup(Tokens(A, BLOCK, namespace="salt"), 99) is None
    assert host.cache.resident(Tokens(A, BLOCK, namespace="salt"), 99) == []


@given(operations)
def test_one_object_a_request_is_cachetools_lru(script: list[tuple[str, int]]) -> None:
    # One KV block and the checkpoint at its end, always used together: a pair is an object.
    host = Host(block=1, checkpoint=1)
    reference: LRUCache[int, int] = LRUCache(CAPACITY)
    for operation, key in script:
        resumed = host.start("r", [key, -1])
        assert (resumed == 1) == (key in reference)
        if operation == "get":
            reference.get(key)
        else:
            host.offer("r", [key, -1], 1)
            reference[key] = key
        host.cache.release("r", 0.0)
        while host.cache.resident_blocks > 2 * CAPACITY:
            host.evict()
