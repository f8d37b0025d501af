"""A radix tree over token prefixes that shares KV blocks between the states filed in it.

Nodes sit at exact token positions. Each node owns the KV blocks of its segment (parent, node]: block indices
[parent // B, node // B), and, where it is a marked leaf ending inside a block, that terminal block too. Under a
deeper node the terminal block is not held: the deeper node's first block starts with the same tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar, cast

from flashstate.core.path import Piece, TokenPath

M = TypeVar("M")

KVBlock = tuple[int, ...]
"""One position block: a physical block for each attention group."""


class Node(Generic[M]):
    """A position on a filed prefix. `mark` is what the tree's owner files there; `live` counts running requests."""

    __slots__ = ("blocks", "children", "live", "mark", "parent", "piece", "position", "root")

    def __init__(self, parent: Node[M] | None, piece: Piece, blocks: list[KVBlock]) -> None:
        self.parent = parent
        self.root: Root[M] = parent.root if parent is not None else cast("Root[M]", self)
        self.piece = piece
        self.position = piece.stop
        """Tokens from the start of the prefix to this node. Never changes: splits and merges move where it starts."""
        self.blocks = blocks
        self.children: dict[int, Node[M]] = {}
        self.mark: M | None = None
        self.live = 0

    def ancestors(self) -> Iterator[Node[M]]:
        """Nodes above this one, nearest first, without the root."""
        node = self.parent
        while node is not None and node.parent is not None:
            yield node
            node = node.parent


class Root(Node[M]):
    """Position 0 of one namespace, with the node that each block boundary below it lies in, by the prefix's key."""

    __slots__ = ("boundaries", "namespace")

    def __init__(self, path: TokenPath, block_tokens: int) -> None:
        super().__init__(None, Piece(0, path.tokens(0, 0), [], block_tokens), [])
        self.namespace = path.namespace
        self.boundaries: dict[Hashable, Node[M]] = {}

    def deepest_boundary(self, path: TokenPath, most: int) -> tuple[int, Node[M]]:
        """How many leading blocks of `path` are filed here, at most `most`, and the node the last one ends in."""
        get, key = self.boundaries.get, path.key
        low, high, found = 0, most, cast("Node[M]", self)
        probe = most  # prompts mostly agree to the end, or nearly
        while low < high:
            node = get(key(probe))
            if node is None:
                high = probe - 1
            else:
                low, found = probe, node
            probe = (low + high + 1) // 2
        return low, found


class Match(NamedTuple, Generic[M]):
    """How far a path is known: `length` tokens, past `node` by part of `into`."""

    node: Node[M]
    length: int
    into: Node[M] | None


class Placed(NamedTuple, Generic[M]):
    """Where a prefix was filed, with the KV blocks the tree took over for it and those it no longer needs."""

    node: Node[M]
    taken: list[KVBlock]
    freed: list[KVBlock]


class Removed(NamedTuple, Generic[M]):
    """KV blocks freed by taking a node out, and the node whose segment grew by it."""

    freed: list[KVBlock]
    grown: Node[M] | None


class PrefixTree(Generic[M]):
    """See the module. Not thread-safe; every call is O(depth of the path)."""

    def __init__(self, block_tokens: int) -> None:
        assert block_tokens > 0, block_tokens
        self.block_tokens = block_tokens
        self.roots: dict[Hashable, Root[M]] = {}
        self.tokens = 0
        """Tokens held in all pieces."""
        self._tip: tuple[TokenPath, Node[M]] | None = None
        """The last insertion: a request's checkpoints mostly come one after another, each below the last."""

    def is_needed(self, node: Node[M]) -> bool:
        """Whether `node` must stay a node even when nothing branches there."""
        return node.mark is not None or node.live > 0

    def is_filed(self, node: Node[M]) -> bool:
        """Whether `node` carries something a lookup should report."""
        return node.mark is not None

    def find(self, path: TokenPath, limit: int) -> Match[M]:
        """The longest filed prefix of `path`, at most `limit` tokens. Does not mutate.

        O(log blocks), and a walk inside the last block.
        """
        root = self.roots.get(path.namespace)
        if root is None:
            return Match(Root(path, self.block_tokens), 0, None)
        blocks, node = root.deepest_boundary(path, limit // self.block_tokens)
        # Proven equal up to here, and unequal at the next boundary if the path reaches it.
        at = blocks * self.block_tokens
        after = at + self.block_tokens
        while True:
            position, above = node.position, node.parent
            if at < position and above is not None:
                length = node.piece.match(path, at, min(position, limit), after)
                if length < position:
                    return Match(above, length, node if length > above.position else None)
            below = node.children.get(path.token(position)) if position < limit else None
            if below is None:
                return Match(node, position, None)
            at, node = position, below

    def filed(self, node: Node[M]) -> Iterator[Node[M]]:
        """Those of `node` and the nodes above it that a lookup should report, deepest first."""
        if self.is_filed(node):
            yield node
        yield from filter(self.is_filed, node.ancestors())

    def insert(self, path: TokenPath, position: int, blocks: Sequence[KVBlock]) -> Placed[M]:
        """Make a node at `position` of `path`. `blocks` are the whole prefix's; those already held are not taken."""
        assert 0 < position <= len(path), (position, len(path))
        match = self.at_tip(path, position) or self.find(path, position)
        parent = match.node
        if match.into is not None:
            parent = self.split(match.into, match.length)
        elif isinstance(parent, Root):
            self.roots[parent.namespace] = parent
        if parent.position == position:
            self._tip = path, parent
            return Placed(parent, [], [])
        freed: list[KVBlock] = []
        if self.has_terminal(parent):
            freed.append(parent.blocks.pop())
        first = parent.position // self.block_tokens
        taken = list(blocks[first : -(-position // self.block_tokens)])
        piece = Piece.of(path, parent.position, position, self.block_tokens)
        node = Node(parent, piece, taken)
        parent.children[piece.ids[0]] = node
        if piece.keys:
            node.root.boundaries.update(dict.fromkeys(piece.keys, node))
        self.tokens += len(piece.ids)
        self.on_insert(node)
        self._tip = path, node
        return Placed(node, list(taken), freed)

    def at_tip(self, path: TokenPath, limit: int) -> Match[M] | None:
        """What `find` gives where `path` was inserted last and nothing is below; None if that is not so."""
        if self._tip is None or self._tip[0] is not path:
            return None
        node = self._tip[1]
        return Match(node, node.position, None) if node.position <= limit and not node.children else None

    def on_insert(self, node: Node[M]) -> None:
        """Called for each new leaf. For subclasses."""

    def on_split(self, upper: Node[M], lower: Node[M]) -> None:
        """Called after a segment was cut in two. For subclasses."""

    def split(self, node: Node[M], position: int) -> Node[M]:
        """Put a node at `position` inside `node`'s segment; the block around `position` stays below."""
        parent = node.parent
        assert parent is not None and parent.position < position < node.position, (position, node.position)
        above, below = node.piece.split(position)
        cut = position // self.block_tokens - above.start // self.block_tokens
        upper: Node[M] = Node(parent, above, node.blocks[:cut])
        parent.children[above.ids[0]] = upper
        node.parent, node.piece, node.blocks = upper, below, node.blocks[cut:]
        upper.children[below.ids[0]] = node
        if above.keys:
            node.root.boundaries.update(dict.fromkeys(above.keys, upper))
        self.on_split(upper, node)
        return upper

    def has_terminal(self, node: Node[M]) -> bool:
        """Whether `node` holds the partly filled block it ends in."""
        held = len(node.blocks)
        return held > node.position // self.block_tokens - node.piece.start // self.block_tokens

    def discard(self, node: Node[M]) -> Removed[M]:
        """Take `node` out if nothing needs it, and what that leaves useless above. Mutates."""
        freed: list[KVBlock] = []
        while node.parent is not None and not self.is_needed(node) and len(node.children) < 2:
            if node.children:
                return Removed(freed, self._merge(node))
            parent = node.parent
            freed += self._drop_leaf(node)
            node = parent
        if isinstance(node, Root) and not node.children:
            del self.roots[node.namespace]
        return Removed(freed, None)

    def retained_by_parent(self, node: Node[M]) -> int:
        """How many of a leaf's blocks its parent takes over when the leaf goes: its terminal block, or none."""
        parent = node.parent
        assert parent is not None
        if parent.mark is None or len(parent.children) != 1:
            return 0
        return int(parent.position % self.block_tokens != 0)

    def _drop_leaf(self, node: Node[M]) -> list[KVBlock]:
        parent = node.parent
        assert parent is not None and not node.children
        kept = self.retained_by_parent(node)
        parent.blocks += node.blocks[:kept]
        del parent.children[node.piece.ids[0]]
        if self._tip is not None and self._tip[1] is node:
            self._tip = None
        for key in node.piece.keys:
            del node.root.boundaries[key]
        self.tokens -= len(node.piece.ids)
        return node.blocks[kept:]

    def _merge(self, node: Node[M]) -> Node[M]:
        (child,) = node.children.values()
        parent = node.parent
        if self._tip is not None and self._tip[1] is node:
            self._tip = None
        assert parent is not None
        if node.piece.keys:
            child.root.boundaries.update(dict.fromkeys(node.piece.keys, child))
        child.piece = node.piece.join(child.piece)
        child.blocks = node.blocks + child.blocks
        child.parent = parent
        parent.children[child.piece.ids[0]] = child
        return child

    def blocks_of(self, node: Node[M]) -> list[KVBlock]:
        """KV blocks of the whole prefix up to `node`, the terminal one included."""
        chain = [node, *node.ancestors()]
        blocks = [block for link in reversed(chain) for block in link.blocks]
        if node.position % self.block_tokens and not self.has_terminal(node):
            below = node
            while not (below := next(iter(below.children.values()))).blocks:
                pass
            blocks.append(below.blocks[0])
        return blocks

    def nodes(self) -> Iterator[Node[M]]:
        """Every node but the roots. Scans: for checks and rebuilds only."""
        pending = [child for root in self.roots.values() for child in root.children.values()]
        while pending:
            node = pending.pop()
            yield node
            pending += node.children.values()
