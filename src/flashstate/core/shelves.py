"""What an `AllocationCache` keeps, by the prefix it belongs to: KV blocks and checkpoints, each found on its own."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from flashstate.core.path import Piece, TokenPath, TokenRun
from flashstate.core.state import Checkpoint
from flashstate.core.tree import KVBlock


class Block:
    """The KV of one position block: of all its tokens, or of as many as were filled, up to `stop`."""

    __slots__ = ("holds", "ids", "key", "physical", "shelf", "stop")

    def __init__(self, shelf: Shelf, physical: KVBlock) -> None:
        self.shelf = shelf
        self.physical = physical
        self.ids: TokenRun
        self.stop = shelf.start
        self.key: Hashable = None
        """Identity of the prefix that ends with this block; None while it is not full."""
        self.holds = 0
        """Live requests that use it."""

    def starts_with(self, ids: TokenRun, stop: int) -> bool:
        """Whether its tokens up to `stop` are `ids`."""
        return stop <= self.stop and self.ids[: stop - self.shelf.start] == ids


class State:
    """A checkpoint at `stop`. `ids` are the tokens since the last block boundary before it."""

    __slots__ = ("checkpoint", "ids", "shelf", "stop")

    def __init__(self, shelf: Shelf, ids: TokenRun, checkpoint: Checkpoint) -> None:
        self.shelf = shelf
        self.ids = ids
        self.stop = checkpoint.position
        self.checkpoint = checkpoint


class Shelf:
    """What follows one prefix of full blocks, `start` tokens long, before the next boundary is passed."""

    __slots__ = ("blocks", "key", "space", "start", "states")

    def __init__(self, space: Space, key: Hashable, start: int) -> None:
        self.space = space
        self.key = key
        self.start = start
        self.blocks: dict[Block, None] = {}
        self.states: dict[State, None] = {}

    def state_at(self, ids: TokenRun, stop: int) -> State | None:
        """The checkpoint after `ids`."""
        for state in self.states:
            if state.stop == stop and state.ids == ids:
                return state
        return None

    def kv_of(self, ids: TokenRun, stop: int) -> Block | None:
        """The block that starts with `ids`; if there are several, the one least filled."""
        least: Block | None = None
        for block in self.blocks:
            if (least is None or block.stop < least.stop) and block.starts_with(ids, stop):
                least = block
        return least

    def filled(self, physical: KVBlock) -> Block | None:
        """The block that lies in `physical`."""
        for block in self.blocks:
            if block.physical == physical:
                return block
        return None

    def emptier(self, path: TokenPath, stop: int) -> list[Block]:
        """The blocks that hold a part of what `path` has up to `stop`."""
        return [b for b in self.blocks if b.stop < stop and b.ids == path.tokens(self.start, b.stop)]

    def has_state_on(self, path: TokenPath, limit: int) -> bool:
        """Whether a checkpoint on `path`, up to `limit`, ends inside the block."""
        inside = (state for state in self.states if self.start < state.stop <= limit)
        return any(state.ids == path.tokens(self.start, state.stop) for state in inside)

    def intact(self, path: TokenPath, limit: int) -> Iterator[tuple[State, Block | None]]:
        """The checkpoints on `path` up to `limit` whose last, partly filled block is held, with it; deepest first."""
        for state in sorted(self.states, key=lambda state: -state.stop):
            if state.stop <= limit and state.ids == path.tokens(self.start, state.stop):
                terminal = self.kv_of(state.ids, state.stop) if state.stop > self.start else None
                if terminal is not None or state.stop == self.start:
                    yield state, terminal


class Space:
    """One namespace: its shelves, and its full blocks by the key of the prefix that each ends."""

    __slots__ = ("block_tokens", "full", "namespace", "shelves")

    def __init__(self, namespace: Hashable, block_tokens: int) -> None:
        self.namespace = namespace
        self.block_tokens = block_tokens
        self.full: dict[Hashable, Block] = {}
        self.shelves: dict[Hashable, Shelf] = {}

    def run(self, path: TokenPath, limit: int) -> list[Block]:
        """The full blocks of the longest prefix held, at most `limit` tokens."""
        full, key, blocks = self.full, path.key, []
        for depth in range(1, limit // self.block_tokens + 1):
            block = full.get(key(depth))
            if block is None:
                break
            blocks.append(block)
        return blocks

    def resident_tokens(self, path: TokenPath, limit: int) -> int:
        """The end of the longest prefix whose KV is held, to the token."""
        start = len(self.run(path, limit)) * self.block_tokens
        shelf, after = self.find(path, start), start + self.block_tokens
        longest = start
        for block in shelf.blocks if shelf is not None else ():
            piece = Piece(start, block.ids, [], self.block_tokens)
            longest = max(longest, piece.match(path, start, min(block.stop, limit), after))
        return longest

    def deepest(self, path: TokenPath, limit: int) -> tuple[State, list[KVBlock]] | None:
        """The deepest checkpoint on `path` whose KV is wholly held, and that KV."""
        blocks = self.run(path, limit)
        for depth in range(len(blocks), -1, -1):
            shelf = self.find(path, depth * self.block_tokens)
            for state, terminal in shelf.intact(path, limit) if shelf is not None and shelf.states else ():
                kv = [block.physical for block in blocks[:depth]]
                return state, kv if terminal is None else [*kv, terminal.physical]
        return None

    def find(self, path: TokenPath, position: int) -> Shelf | None:
        """The shelf for what lies in the block of `position`."""
        depth = position // self.block_tokens
        return self.shelves.get(path.key(depth) if depth else None)

    def shelf(self, path: TokenPath, position: int) -> Shelf:
        """The same, made if it is not there."""
        depth = position // self.block_tokens
        key = path.key(depth) if depth else None
        shelf = self.shelves.get(key)
        if shelf is None:
            shelf = self.shelves[key] = Shelf(self, key, depth * self.block_tokens)
        return shelf

    def fill(self, block: Block, path: TokenPath, ids: TokenRun, stop: int) -> None:
        """`block` now holds `ids`, the tokens of `path` up to `stop`."""
        block.ids, block.stop = ids, stop
        if stop == block.shelf.start + self.block_tokens:
            block.key = path.key(stop // self.block_tokens)
            self.full[block.key] = block

    def tidy(self, shelf: Shelf) -> None:
        """Drop `shelf` if nothing is in it."""
        if not shelf.blocks and not shelf.states:
            del self.shelves[shelf.key]
