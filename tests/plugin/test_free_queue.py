"""The free-block queue: whatever vLLM and the cache do, free + held + live = total."""

from __future__ import annotations

import pytest

pytest.importorskip("vllm")

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from vllm.v1.core.block_pool import BlockPool

from flashstate.plugin.free_queue import HoldingQueue

TOTAL = 12
"""Blocks, the null block apart."""
choice = st.integers(0, 10**6)


class QueueMachine(RuleBasedStateMachine):
    """A block pool under arbitrary requests, with units of blocks that the cache takes over and gives up."""

    @initialize()
    def start(self) -> None:
        self.pool = BlockPool(TOTAL + 1, True, 16)
        self.units: list[frozenset[int]] = []
        self.queue = HoldingQueue(self.pool, self._evict)
        self.uses: list[list[int]] = []
        """Blocks of each running request."""

    def _evict(self) -> frozenset[int] | None:
        return self.units.pop(0) if self.units else None

    def _available(self) -> int:
        return TOTAL - len({block for use in self.uses for block in use})

    @rule(wanted=st.integers(1, TOTAL))
    def allocate(self, wanted: int) -> None:
        if wanted > self._available():
            with pytest.raises(ValueError, match="free blocks"):
                self.pool.get_new_blocks(wanted)
            return
        blocks = self.pool.get_new_blocks(wanted)
        taken = {block.block_id for block in blocks}
        assert len(taken) == wanted
        # Never a block of a state still cached, never one that a request uses.
        assert not taken & {block for unit in self.units for block in unit}
        assert not taken & {block for use in self.uses for block in use}
        self.uses.append([block.block_id for block in blocks])

    @precondition(lambda self: self.uses)
    @rule(which=choice, prepend=st.booleans())
    def free(self, which: int, prepend: bool) -> None:
        use = self.uses.pop(which % len(self.uses))
        blocks = [self.pool.blocks[block] for block in reversed(use)]
        if prepend:
            for block in blocks:
                block.ref_cnt -= 1
            self.queue.prepend_n([block for block in blocks if block.ref_cnt == 0])
        else:
            self.pool.free_blocks(blocks)

    @precondition(lambda self: self.uses)
    @rule(which=choice, count=st.integers(1, 4))
    def own(self, which: int, count: int) -> None:
        """The cache takes over blocks of a request that still runs."""
        use = self.uses[which % len(self.uses)]
        unit = frozenset(block for block in use[:count] if block not in self.queue.owned)
        if unit:
            self.units.append(unit)
            self.queue.own(unit, ())

    @rule(count=st.integers(1, 3))
    def own_unused(self, count: int) -> None:
        """The cache takes over blocks that no request uses and that are listed as free."""
        listed = [
            block for block in self.queue.get_all_free_blocks() if block.block_id not in self.queue.held
        ]
        unit = frozenset(block.block_id for block in listed[-count:])
        if unit:
            self.units.append(unit)
            self.queue.own(unit, ())

    @precondition(lambda self: self.units)
    @rule(which=choice)
    def disown(self, which: int) -> None:
        unit = self.units.pop(which % len(self.units))
        idle = {block for block in unit if self.pool.blocks[block].ref_cnt == 0}
        self.queue.disown(unit)
        # What was given up is handed out next.
        head = [block.block_id for block in self.queue.get_all_free_blocks()[: len(idle)]]
        assert set(head) == idle

    @precondition(lambda self: self.units)
    @rule(which=choice)
    def touch(self, which: int) -> None:
        """A request resumes from a unit."""
        unit = self.units[which % len(self.units)]
        self.pool.touch([self.pool.blocks[block] for block in unit])
        self.uses.append(sorted(unit))

    @precondition(lambda self: self.units)
    @rule(first=choice, second=choice)
    def replace(self, first: int, second: int) -> None:
        """A capture that takes one unit's blocks and frees another's."""
        freed = self.units.pop(first % len(self.units))
        listed = [
            block for block in self.queue.get_all_free_blocks() if block.block_id not in self.queue.held
        ]
        taken = frozenset(block.block_id for block in listed[second % 3 :][:2])
        if taken:
            self.units.append(taken)
        self.queue.own(taken, freed)

    @invariant()
    def accounts(self) -> None:
        live = {block.block_id for block in self.pool.blocks if block.ref_cnt and not block.is_null}
        assert live == {block for use in self.uses for block in use}
        owned = {block for unit in self.units for block in unit}
        assert owned == self.queue.owned
        assert set(self.queue.held) == owned - live
        free = [block.block_id for block in self.queue.get_all_free_blocks()]
        assert len(free) == len(set(free)) == self.queue.num_free_blocks == self.pool.get_num_free_blocks()
        assert len(free) + len(live) == TOTAL
        assert self.queue.has_room == (len(free) > len(self.queue.held))


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_running_out_of_units_is_an_error_that_says_so() -> None:
    pool = BlockPool(5, True, 16)
    queue = HoldingQueue(pool, lambda: None)
    queue.own([1, 2], ())
    assert pool.get_num_free_blocks() == 4
    with pytest.raises(RuntimeError, match="3 blocks wanted, 2 listed, 2 held"):
        queue.popleft_n(3)
