"""Counted blocks: who holds which, and how many are free. Blocks have numbers and no contents."""

from __future__ import annotations

from collections.abc import Iterable

from flashstate.core.tree import KVBlock


class Pool:
    """`capacity` blocks. A block is free again when the cache and every request have let go of it.

    A run's live requests may need more than there is: `free` is then negative, and nothing is kept.
    """

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.free = capacity
        """Blocks left; below 0 where live requests need more than there are."""
        self._holders: dict[int, int] = {}
        self._next = 1

    @property
    def used(self) -> int:
        """Blocks that someone holds."""
        return len(self._holders)

    def is_shared(self, block: int) -> bool:
        """Whether more than one holds it: of a cached block, some request beside the cache."""
        return self._holders.get(block, 0) > 1

    def new(self, blocks: int) -> list[int]:
        """Numbers for new blocks. Nobody holds them yet."""
        first = self._next
        self._next += blocks
        return list(range(first, self._next))

    def hold(self, blocks: Iterable[int]) -> None:
        """One more holder for each block."""
        holders = self._holders
        for block in blocks:
            holders[block] = holders.get(block, 0) + 1
        self.free = self.capacity - len(holders)

    def let_go(self, blocks: Iterable[int]) -> None:
        """One holder less for each block; a block without holders is free."""
        holders = self._holders
        for block in blocks:
            left = holders[block] - 1
            if left:
                holders[block] = left
            else:
                del holders[block]
        self.free = self.capacity - len(holders)


def ids(kv: Iterable[KVBlock]) -> list[int]:
    """The physical blocks of position blocks, one attention group."""
    return [block for (block,) in kv]
