"""Hybrid states: what a prefix can be resumed from, and what keeping one costs and saves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from flashstate.core.thread import Thread
from flashstate.core.tree import KVBlock, Node, PrefixTree

REQUEST_END = "request_end"
PROMPT_BOUNDARY = "prompt_boundary"
PROMPT_END = "prompt_end"
JUNCTION = "junction"
CHUNK_END = "chunk_end"
NAMED = "named"
CHECKPOINT_KINDS = (REQUEST_END, PROMPT_BOUNDARY, PROMPT_END, JUNCTION, CHUNK_END, NAMED)


class Checkpoint(NamedTuple):
    """Every recurrent layer's state after exactly `position` tokens, in the physical blocks named."""

    position: int
    blocks: tuple[int, ...]
    kind: str
    """One of CHECKPOINT_KINDS: where in a request it was taken."""


@dataclass(frozen=True, slots=True)
class HybridState:
    """A resumable position: its checkpoint and the attention KV of every token before it."""

    checkpoint: Checkpoint
    kv: tuple[KVBlock, ...]
    is_open: bool
    """Whether nothing goes on from here yet: then a request may fill the terminal block on in place."""

    @property
    def position(self) -> int:
        return self.checkpoint.position


class RecoveryUnit:
    """A cached hybrid state as the thing to keep or evict. Its figures follow the tree as neighbours come and go."""

    __slots__ = (
        "checkpoint",
        "last_use_s",
        "node",
        "park_serial",
        "parked",
        "path_end",
        "position",
        "serial",
        "stamp",
        "thread",
        "tree",
        "turns_above",
        "use_serial",
        "version",
    )

    def __init__(self, tree: UnitTree, node: Node[RecoveryUnit], checkpoint: Checkpoint, serial: int) -> None:
        self.tree = tree
        self.node = node
        self.checkpoint = checkpoint
        self.position = checkpoint.position
        self.serial = serial
        self.stamp = 0.0
        """The policy's watermark at the last use, in seconds a block."""
        self.last_use_s = 0.0
        self.use_serial = 0
        self.path_end = checkpoint.position
        """Where the latest request on this path ended, in tokens, as far as the policy follows it."""
        self.thread: Thread | None = None
        """The conversation that went through here last."""
        self.turns_above = 0
        """Captures made deeper on this path since."""
        self.parked = 0
        """Waiting requests about to resume here."""
        self.park_serial = 0
        """When the first of them came, in the cache's count of events."""
        self.version = 0

    @property
    def is_held(self) -> bool:
        """Whether a running request resumed from here and still runs."""
        return self.node.live > 0

    @property
    def fallback(self) -> int:
        """The nearest earlier position that would still be resumable without this state."""
        node = self.node.parent
        while node is not None and node.mark is None and node.parent is not None:
            node = node.parent
        return node.position if node is not None else 0

    @property
    def size_blocks(self) -> int:
        """Blocks freed by evicting this state: its checkpoint, and KV nothing else intact needs.

        A running request's KV counts as freed, as it will be.
        """
        node, size = self.node, len(self.checkpoint.blocks)
        if node.children:
            return size
        tree = self.tree
        return size + (len(node.blocks) - tree.retained_by_parent(node)) * tree.kv_width

    def states_below(self) -> Iterator[RecoveryUnit]:
        """The nearest deeper cached states, one for each branch."""
        # Asked of the point where thousands of conversations branch: look at no more children than the caller takes.
        pending = [iter(self.node.children.values())]
        while pending:
            for node in pending[-1]:
                if node.mark is not None:
                    yield node.mark
                else:
                    pending.append(iter(node.children.values()))
                    break
            else:
                pending.pop()

    @property
    def below(self) -> tuple[RecoveryUnit | None, bool]:
        """The nearest deeper cached state, or None, and whether there are others: then this is a branch point."""
        children = self.node.children
        # By far the commonest: a leaf, or one turn after another.
        if not children:
            return None, False
        if len(children) == 1:
            (child,) = children.values()
            if child.mark is not None:
                return child.mark, False
        states = self.states_below()
        return next(states, None), next(states, None) is not None

    @property
    def tier(self) -> str:
        """leaf, inner (superseded by exactly one deeper state) or branch."""
        below, is_branch = self.below
        if below is None:
            return "leaf"
        return "branch" if is_branch else "inner"


class UnitTree(PrefixTree[RecoveryUnit]):
    """The tree of cached states. `kv_width` is the physical blocks a position block takes (attention groups)."""

    def __init__(self, block_tokens: int, kv_width: int) -> None:
        super().__init__(block_tokens)
        self.kv_width = kv_width
