"""A cache that evicts KV blocks and checkpoints apart, each by its own last use, as vLLM does."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from flashstate.core.base import Capture, Eviction, StateCache
from flashstate.core.cost import PrefillCostModel
from flashstate.core.path import TokenPath, TokenRun
from flashstate.core.shelves import Block, Shelf, Space, State
from flashstate.core.state import Checkpoint, HybridState
from flashstate.core.tree import KVBlock

KV, CHECKPOINT = "kv", "checkpoint"


@dataclass(slots=True, eq=False)
class Hold:
    """What a live request uses: the full blocks of its path from the start on, and the one it is filling."""

    blocks: list[Block]
    tail: Block | None
    checkpointed: frozenset[int]
    """Positions of its prompt where the history knows of a checkpoint."""


class Filed:
    """Physical blocks taken over and let go, and the blocks used by no live request."""

    __slots__ = ("freed", "loose", "taken")

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.freed: list[int] = []
        self.loose: list[Block] = []


class AllocationCache(StateCache):
    """KV blocks and checkpoints in one queue; the one used longest ago goes first.

    A checkpoint is used when written and when resumed from; KV when a request that uses it ends, its deepest block
    first. The KV of live requests is not evicted; the checkpoint they resumed from may be, for they have a copy. A
    block computed again is the same block. A partly filled block is kept only where a checkpoint ends in it.
    Checkpoints and KV outlive each other: those are the dependency misses.

    Every call is O(depth of the path), times what branches off inside one block.
    """

    def __init__(
        self, *, block_tokens: int, history_tokens: int, cost: PrefillCostModel | None = None
    ) -> None:
        super().__init__(block_tokens, history_tokens, cost or PrefillCostModel())
        self._spaces: dict[Hashable, Space] = {}
        self._holds: dict[Hashable, Hold] = {}
        self._queue: OrderedDict[Block | State, None] = OrderedDict()

    # --- what a prefix may resume from ------------------------------------------------------------------

    def lookup(self, path: TokenPath, limit: int) -> HybridState | None:
        """See StateCache: the deepest checkpoint whose KV is wholly held."""
        space = self._spaces.get(path.namespace)
        found = space.deepest(path, limit) if space is not None else None
        if found is None:
            return None
        state, kv = found
        return HybridState(state.checkpoint, tuple(kv), self._open_block(state) is not None)

    def resident(self, path: TokenPath, limit: int) -> list[KVBlock]:
        space = self._spaces.get(path.namespace)
        return [block.physical for block in space.run(path, limit)] if space is not None else []

    def resident_tokens(self, path: TokenPath, limit: int) -> int:
        space = self._spaces.get(path.namespace)
        return space.resident_tokens(path, limit) if space is not None else 0

    def _open_block(self, state: State) -> Block | None:
        """The block that ends where `state` does, if nobody fills it on."""
        if state.stop == state.shelf.start:
            return None
        block = state.shelf.kv_of(state.ids, state.stop)
        return block if block is not None and block.stop == state.stop and not block.holds else None

    # --- the life of a request --------------------------------------------------------------------------

    def admit(self, request: Hashable, path: TokenPath, resumed: int, now: float) -> None:
        assert request not in self._holds, request
        space = self._spaces.get(path.namespace)
        blocks = space.run(path, len(path) - 1) if space is not None else []
        tail = None
        shelf = space.find(path, resumed) if space is not None else None
        state = shelf.state_at(path.tokens(shelf.start, resumed), resumed) if shelf is not None else None
        if state is not None:
            self._queue.move_to_end(state)
            if len(blocks) == resumed // self.block_tokens:
                tail = self._open_block(state)
        for block in blocks if tail is None else [*blocks, tail]:
            self._hold(block)
        # As `observe` asked: the history answers that at once.
        checkpointed = frozenset(self.history.precedent(path, len(path) - 1).checkpoints)
        self._holds[request] = Hold(blocks, tail, checkpointed)

    def capture(
        self,
        path: TokenPath,
        checkpoint: Checkpoint,
        kv: Sequence[KVBlock],
        now: float,
        *,
        room: bool,
        request: Hashable = None,
    ) -> Capture:
        """See StateCache. Never refused: a newcomer is the last to go."""
        position = checkpoint.position
        assert 0 < position <= len(path), (position, len(path))
        space = self._space(path)
        hold = self._holds.get(request)
        if hold is None or position not in hold.checkpointed:
            self.history.checkpoint_taken(path, position)
        shelf = space.shelf(path, position)
        ids = path.tokens(shelf.start, position)
        tail, full = hold.tail if hold is not None else None, position // self.block_tokens
        filed: Filed | None = None
        if (
            hold is None
            or tail is None
            or len(hold.blocks) != full
            or position == shelf.start
            or tail.physical != kv[full]
        ):
            filed = self._file(space, hold, path, position, kv, (shelf, ids))
        elif tail.stop < position:  # by far the commonest: on in the block it fills already
            tail.ids, tail.stop = ids, position
        state = shelf.state_at(ids, position) if shelf.states else None
        if state is not None:
            self._queue.move_to_end(state)
            return Capture(kept=False) if filed is None else self._changed(False, filed)
        state = State(shelf, ids, checkpoint)
        shelf.states[state] = None
        self._queue[state] = None
        self.counters.captures[checkpoint.kind] += 1
        if filed is not None:
            filed.taken += checkpoint.blocks
            return self._changed(True, filed)
        taken = frozenset(checkpoint.blocks)
        self.resident_blocks += len(taken)
        return Capture(True, taken)

    def file_kv(
        self, path: TokenPath, position: int, kv: Sequence[KVBlock], now: float, *, request: Hashable = None
    ) -> Capture:
        space = self._space(path)
        filed = self._file(space, self._holds.get(request), path, position, kv, None)
        self._tidy(space)
        return self._changed(False, filed)

    def release(self, request: Hashable, now: float) -> frozenset[int]:
        """See StateCache. Frees nothing: what the request used is evicted in its turn."""
        hold = self._holds.pop(request, None)
        if hold is not None:
            if hold.tail is not None:
                self._let_go(hold.tail)
            for block in reversed(hold.blocks):
                self._let_go(block)
        return frozenset()

    def evict(self, now: float) -> Eviction | None:
        """Give up the block or checkpoint used longest ago. O(1). None if live requests use all there is."""
        if not self._queue:
            return None
        oldest, _ = self._queue.popitem(last=False)
        shelf = oldest.shelf
        space = shelf.space
        if isinstance(oldest, State):
            tier, freed = CHECKPOINT, frozenset(oldest.checkpoint.blocks)
            del shelf.states[oldest]
        else:
            tier, freed = KV, frozenset(oldest.physical)
            del shelf.blocks[oldest]
            if oldest.key is not None:
                del space.full[oldest.key]
        if not (shelf.blocks or shelf.states):
            del space.shelves[shelf.key]
            if not space.shelves:
                self._tidy(space)
        self.resident_blocks -= len(freed)
        self.counters.evictions[tier] += 1
        return Eviction(oldest.stop, tier, freed)

    def allocations(self) -> Iterator[Block | State]:
        """All that is kept. Scans: for checks only."""
        for space in self._spaces.values():
            for shelf in space.shelves.values():
                yield from shelf.blocks
                yield from shelf.states

    # --- filing KV --------------------------------------------------------------------------------------

    def _file(
        self,
        space: Space,
        hold: Hold | None,
        path: TokenPath,
        position: int,
        kv: Sequence[KVBlock],
        end: tuple[Shelf, TokenRun] | None,
    ) -> Filed:
        """Take over the KV of `position` tokens where it is not held yet.

        `end`: where the checkpoint goes that is taken there, and the tokens since that shelf's start; None: none is.
        """
        filed, size = Filed(), self.block_tokens
        full = position // size
        assert len(kv) >= -(-position // size), (len(kv), position, size)
        for index in range(len(hold.blocks) if hold is not None else 0, full):
            block = space.full.get(path.key(index + 1))
            if block is None:
                shelf, stop = space.shelf(path, index * size), (index + 1) * size
                ids = path.tokens(shelf.start, stop)
                block = self._place(shelf, hold, path, ids, stop, kv[index], filed)
            if hold is None:
                filed.loose.append(block)
            else:
                self._set_tail(hold, block)
                hold.blocks.append(block)
                hold.tail = None
        if position % size and (hold is None or len(hold.blocks) == full):
            block = self._terminal(space, hold, path, position, kv[full], filed, end)
            if hold is not None:
                self._set_tail(hold, block)
            elif block is not None:
                filed.loose.append(block)
        for block in reversed(filed.loose):
            if not block.holds:
                self._use(block)
        return filed

    def _terminal(
        self,
        space: Space,
        hold: Hold | None,
        path: TokenPath,
        position: int,
        physical: KVBlock,
        filed: Filed,
        end: tuple[Shelf, TokenRun] | None,
    ) -> Block | None:
        """The block that `position` lies in; None if no checkpoint needs it."""
        if end is not None:
            shelf, ids = end
        else:
            shelf = space.shelf(path, position)
            ids = path.tokens(shelf.start, position)
        tail = hold.tail if hold is not None else None
        if tail is not None and tail.physical == physical:
            if tail.stop < position:
                space.fill(tail, path, ids, position)
            return tail
        known = shelf.kv_of(ids, position)
        if known is not None:
            return known
        if end is not None or shelf.has_state_on(path, position):
            return self._place(shelf, hold, path, ids, position, physical, filed)
        space.tidy(shelf)
        return None

    def _place(
        self,
        shelf: Shelf,
        hold: Hold | None,
        path: TokenPath,
        ids: TokenRun,
        stop: int,
        physical: KVBlock,
        filed: Filed,
    ) -> Block:
        """The block of `ids`, up to `stop`: the one that was filled on, or a new one, which replaces emptier ones."""
        block = hold.tail if hold is not None else None
        if block is None or block.physical != physical:
            if hold is not None:
                self._set_tail(hold, None)
            block = shelf.filled(physical)
        if block is None:
            for emptier in shelf.emptier(path, stop):
                if not emptier.holds:
                    filed.freed += emptier.physical
                    del self._queue[emptier], shelf.blocks[emptier]
            block = Block(shelf, physical)
            shelf.blocks[block] = None
            filed.taken += physical
        shelf.space.fill(block, path, ids, stop)
        return block

    def _set_tail(self, hold: Hold, block: Block | None) -> None:
        """The block that the request behind `hold` fills is now `block`."""
        if hold.tail is block:
            return
        if block is not None:
            self._hold(block)
        if hold.tail is not None:
            self._let_go(hold.tail)
        hold.tail = block

    # --- inside -----------------------------------------------------------------------------------------

    def _space(self, path: TokenPath) -> Space:
        space = self._spaces.get(path.namespace)
        if space is None:
            space = self._spaces[path.namespace] = Space(path.namespace, self.block_tokens)
        return space

    def _tidy(self, space: Space) -> None:
        if not space.shelves:
            del self._spaces[space.namespace]

    def _changed(self, kept: bool, filed: Filed) -> Capture:
        taken, freed = frozenset(filed.taken), frozenset(filed.freed)
        self.resident_blocks += len(taken) - len(freed)
        return Capture(kept, taken, freed)

    def _use(self, kept: Block) -> None:
        self._queue[kept] = None
        self._queue.move_to_end(kept)

    def _hold(self, block: Block) -> None:
        block.holds += 1
        self._queue.pop(block, None)

    def _let_go(self, block: Block) -> None:
        block.holds -= 1
        if not block.holds:
            self._use(block)
