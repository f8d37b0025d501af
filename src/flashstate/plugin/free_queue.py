"""vLLM's free-block queue, with the blocks of cached states held back until their unit is evicted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock


class HoldingQueue(FreeKVCacheBlockQueue):
    """Replaces one block pool's `free_block_queue`.

    A block that belongs to a cached state and that no request uses is *held*: it counts as free and can be
    taken back by `remove` (vLLM's touch), but it is handed out only after `evict` gave its whole unit up.
    """

    def __init__(self, pool: BlockPool, evict: Callable[[], frozenset[int] | None]) -> None:
        """Adopts the pool's queue as it is. `evict` gives up one unit and names its blocks, or None."""
        old = pool.free_block_queue
        self._listed: int = old.num_free_blocks
        self.fake_free_list_head = old.fake_free_list_head
        self.fake_free_list_tail = old.fake_free_list_tail
        self._pool = pool
        self._evict = evict
        self.owned: set[int] = set()
        """Blocks of cached states, in use or not."""
        self.held: dict[int, KVCacheBlock] = {}
        pool.free_block_queue = self

    @property
    def num_free_blocks(self) -> int:
        """Listed and held blocks; vLLM's own list code adds to it and subtracts from it."""
        return self._listed + len(self.held)

    @num_free_blocks.setter
    def num_free_blocks(self, value: int) -> None:
        self._listed = value - len(self.held)

    @property
    def has_room(self) -> bool:
        """Whether a block is free without evicting a unit."""
        return self._listed > 0

    def own(self, taken: Iterable[int], freed: Iterable[int]) -> None:
        """The core now holds `taken` and no longer `freed`."""
        for block_id in taken:
            assert block_id not in self.owned, block_id
            self.owned.add(block_id)
            block = self._pool.blocks[block_id]
            if block.ref_cnt == 0:
                super().remove(block)
                self.held[block_id] = block
        self.disown(freed)

    def disown(self, freed: Iterable[int]) -> None:
        """The core gave `freed` up: those no request uses are handed out next."""
        unused = []
        for block_id in freed:
            self.owned.remove(block_id)
            block = self.held.pop(block_id, None)
            if block is not None:
                unused.append(block)
        super().prepend_n(unused)

    def popleft(self) -> KVCacheBlock:
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        while self._listed < n:
            freed = self._evict()
            if freed is None:
                raise RuntimeError(
                    f"flashstate: {n} blocks wanted, {self._listed} listed, {len(self.held)} held, but no unit is "
                    "left to evict; please report this"
                )
            self.disown(freed)
        blocks: list[KVCacheBlock] = super().popleft_n(n)
        return blocks

    def remove(self, block: KVCacheBlock) -> None:
        if self.held.pop(block.block_id, None) is None:
            super().remove(block)

    def append(self, block: KVCacheBlock) -> None:
        self.append_n([block])

    def append_n(self, blocks: list[KVCacheBlock]) -> None:
        super().append_n(self._hold(blocks))

    def prepend_n(self, blocks: list[KVCacheBlock]) -> None:
        super().prepend_n(self._hold(blocks))

    def _hold(self, blocks: list[KVCacheBlock]) -> list[KVCacheBlock]:
        rest = []
        for block in blocks:
            if block.block_id in self.owned:
                self.held[block.block_id] = block
            else:
                rest.append(block)
        return rest

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        return [*super().get_all_free_blocks(), *self.held.values()]
