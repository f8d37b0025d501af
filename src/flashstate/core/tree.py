"""A radix tree over token prefixes that shares KV blocks between the states filed in it.

Nodes sit at exact token positions. Each node owns the KV blocks of its segment (parent, node]: block indices
[parent // B, node // B), and, where it is a marked leaf ending inside a block, that terminal block too. Under a
deeper node the terminal block is not held: the deeper node's first block starts with the same tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
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

    def chain(self) -> list[Node[M]]:
        """This node and those above it, nearest first, without the root."""
        # A plain loop: a path may have hundreds.
        found: list[Node[M]] = []
        node: Node[M] = self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found

    def ancestors(self) -> Iterator[Node[M]]:
        """Nodes above this one, nearest first, without the root."""
        node = self.parent
        while node is not None and node.parent is not None:
            yield node
            node = node.parent


class Root(Node[M]):
    """Position 0 of one namespace, with the node that each block boundary below it lies in, by the prefix's key."""

    __slots__ = ("boundaries", "found", "namespace", "tip")

    def __init__(self, path: TokenPath, block_tokens: int) -> None:
        super().__init__(None, Piece(0, path.tokens(0, 0), [], block_tokens), [])
        self.namespace = path.namespace
        self.boundaries: dict[Hashable, Node[M]] = {}
        self.tip: tuple[TokenPath, Node[M]] | None = None
        """The last insertion: a request's checkpoints mostly come one after another, each below the last."""
        self.found: tuple[TokenPath, int, Match[M]] | None = None
        """The last question and its answer, until a node comes or goes: a new request's is asked many times."""

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


@dataclass(slots=True)
class Placed(Generic[M]):
    """Where a prefix was filed, with the KV blocks the tree took over for it and those it no longer needs."""

    node: Node[M]
    taken: list[KVBlock]
    freed: list[KVBlock]


@dataclass(slots=True)
class Removed(Generic[M]):
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
        if root.found is not None and root.found[0] is path:
            _, asked, match = root.found
            if limit == asked or match.length < asked <= limit:
                return match
            if limit <= match.length:
                return _shortened(match, limit)
        match = self._walk(root, path, limit)
        root.found = path, limit, match
        return match

    def _walk(self, root: Root[M], path: TokenPath, limit: int) -> Match[M]:
        blocks, node = root.deepest_boundary(path, limit // self.block_tokens)
        # Proven equal up to here, and unequal at the next boundary if the path reaches it.
        at = blocks * self.block_tokens
        if at == limit:
            return _ending_in(node, at)
        after = at + self.block_tokens
        tip = root.tip
        if tip is not None and tip[0] is path and at <= tip[1].position <= limit:
            node = tip[1]
            at = node.position
        while True:
            position, above = node.position, node.parent
            if at < position and above is not None:
                length = node.piece.match(path, at, position if position < limit else limit, after)
                if length < position:
                    return Match(above, length, node if length > above.position else None)
            if position >= limit or not node.children:
                return Match(node, position, None)
            below = node.children.get(path.token(position))
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
        root = self.roots.get(path.namespace)
        if root is None:
            root = self.roots[path.namespace] = Root(path, self.block_tokens)
        tip = root.tip
        parent: Node[M]
        if tip is not None and tip[0] is path and tip[1].position <= position and not tip[1].children:
            parent = tip[1]
        else:
            parent, length, into = self.find(path, position)
            if into is not None:
                parent = self.split(into, length)
        if parent.position == position:
            root.tip = path, parent
            return Placed(parent, [], [])
        freed: list[KVBlock] = []
        if parent.blocks and self.has_terminal(parent):
            freed.append(parent.blocks.pop())
        start, size = parent.position, self.block_tokens
        taken = list(blocks[start // size : -(-position // size)]) if blocks else []
        piece = Piece.of(path, start, position, size)
        node = Node(parent, piece, taken)
        parent.children[path.token(start)] = node
        for key in piece.keys:
            root.boundaries[key] = node
        self.tokens += position - start
        self.on_insert(node)
        root.tip, root.found = (path, node), None
        return Placed(node, taken.copy(), freed)

    def at_tip(self, path: TokenPath, limit: int) -> Match[M] | None:
        """What `find` gives where `path` was inserted last and nothing is below; None if that is not so."""
        root = self.roots.get(path.namespace)
        if root is None or root.tip is None or root.tip[0] is not path:
            return None
        node = root.tip[1]
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
        root = node.root
        root.found = None
        for key in above.keys:
            root.boundaries[key] = upper
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
        piece = node.piece
        del parent.children[piece.ids[0]]
        root = node.root
        self._leave(root, node)
        for key in piece.keys:
            del root.boundaries[key]
        self.tokens -= piece.stop - piece.start
        return node.blocks[kept:]

    def _merge(self, node: Node[M]) -> Node[M]:
        (child,) = node.children.values()
        parent, root = node.parent, node.root
        assert parent is not None
        self._leave(root, node)
        for key in node.piece.keys:
            root.boundaries[key] = child
        child.piece = node.piece.join(child.piece)
        child.blocks = node.blocks + child.blocks
        child.parent = parent
        parent.children[child.piece.ids[0]] = child
        return child

    def _leave(self, root: Root[M], node: Node[M]) -> None:
        """`node` is about to go."""
        root.found = None
        if root.tip is not None and root.tip[1] is node:
            root.tip = None

    def blocks_of(self, node: Node[M]) -> list[KVBlock]:
        """KV blocks of the whole prefix up to `node`, the terminal one included."""
        blocks = [block for link in reversed(node.chain()) for block in link.blocks]
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


def _ending_in(node: Node[M], at: int) -> Match[M]:
    """The match of `at` tokens, which are proven to end in `node`'s segment."""
    above = node.parent
    if node.position == at or above is None:
        return Match(node, at, None)
    return Match(above, at, node if at > above.position else None)


def _shortened(match: Match[M], limit: int) -> Match[M]:
    """What `match` is for its first `limit` tokens."""
    node, into = match.node, match.into
    while node.position > limit and node.parent is not None:
        node, into = node.parent, node
    return Match(node, limit, into if node.position < limit else None)
