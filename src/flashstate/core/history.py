"""What once existed: computed prefixes and checkpoint positions, kept after their blocks are gone. Bounded."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from flashstate.core.path import TokenPath
from flashstate.core.thread import Thread
from flashstate.core.tree import Node, PrefixTree


@dataclass(slots=True)
class Past:
    """What is remembered of one position: whether a checkpoint was taken, and the latest request end below."""

    checkpointed: bool
    latest_end: int
    thread: Thread | None = None
    """The latest request's conversation."""


@dataclass(frozen=True, slots=True)
class Precedent:
    """What is known of a new request's prefix, in tokens."""

    computed: int
    """r*: the end of the longest prefix any earlier request computed."""
    checkpoints: tuple[int, ...]
    """Positions up to r* where a checkpoint was ever taken, ascending."""
    latest_end: int | None
    """Where the latest request through r* ended; None if r* is 0."""
    thread: Thread | None = None
    """That request's conversation, where it is known."""


class History(PrefixTree[Past]):
    """A prefix tree without blocks. Forgets the ends used longest ago beyond `max_tokens` tokens."""

    def __init__(self, block_tokens: int, max_tokens: int) -> None:
        super().__init__(block_tokens)
        assert max_tokens > 0, max_tokens
        self.max_tokens = max_tokens
        self.forgets = 0
        """How often it has forgotten an end."""
        self._ends: OrderedDict[Node[Past], None] = OrderedDict()
        self._answer: tuple[TokenPath, int, Precedent] | None = None
        """The last question and its answer, until something changes: a new request's is asked twice."""

    def is_needed(self, node: Node[Past]) -> bool:
        return node in self._ends or (node.mark is not None and node.mark.checkpointed)

    def is_filed(self, node: Node[Past]) -> bool:
        return node.mark is not None and node.mark.checkpointed

    def retained_by_parent(self, node: Node[Past]) -> int:
        return 0

    def on_split(self, upper: Node[Past], lower: Node[Past]) -> None:
        assert lower.mark is not None
        upper.mark = Past(checkpointed=False, latest_end=lower.mark.latest_end, thread=lower.mark.thread)

    def on_insert(self, node: Node[Past]) -> None:
        node.mark = Past(checkpointed=False, latest_end=node.position)

    def checkpoint_taken(self, path: TokenPath, position: int) -> None:
        """Remember that a checkpoint was taken after `position` tokens of `path`."""
        node = self._end(path, position)
        assert node.mark is not None
        node.mark.checkpointed = True
        self._forget()

    def computed(self, path: TokenPath, position: int, thread: Thread | None = None) -> None:
        """Remember that a request of `thread` computed `position` tokens of `path` and ended there."""
        node: Node[Past] | None = self._end(path, position)
        while node is not None:
            if (past := node.mark) is not None:  # the root has none
                past.latest_end, past.thread = position, thread
            node = node.parent
        self._forget()

    def precedent(self, path: TokenPath, limit: int) -> Precedent:
        """What earlier requests left for `path`, up to `limit` tokens. Does not mutate."""
        if self._answer is not None:
            asked, asked_limit, answer = self._answer
            if asked is path and asked_limit == limit:
                return answer
        match = self.find(path, limit)
        past = (match.into or match.node).mark
        if past is None or match.length == 0:
            answer = Precedent(match.length, _checkpoints(match.node), None)
        else:
            answer = Precedent(match.length, _checkpoints(match.node), past.latest_end, past.thread)
        self._answer = path, limit, answer
        return answer

    def _end(self, path: TokenPath, position: int) -> Node[Past]:
        self._answer = None
        node = self.insert(path, position, ()).node
        self._ends[node] = None
        self._ends.move_to_end(node)
        return node

    def _forget(self) -> None:
        while self.tokens > self.max_tokens and len(self._ends) > 1:
            node, _ = self._ends.popitem(last=False)
            self.forgets += 1
            assert node.mark is not None
            if not node.children:
                node.mark.checkpointed = False
            self.discard(node)
            self._keep_as_end(node)

    def _keep_as_end(self, dropped: Node[Past]) -> None:
        """A checkpoint that lost its last deeper end is an end again, and next to be forgotten."""
        for node in dropped.ancestors():
            if node.children:
                return
            if self.is_needed(node):
                self._ends[node] = None
                self._ends.move_to_end(node, last=False)
                return


def _checkpoints(node: Node[Past]) -> tuple[int, ...]:
    """Positions of `node` and the nodes above it where a checkpoint was taken, ascending."""
    # A plain loop: a path may have hundreds.
    found: list[int] = []
    link: Node[Past] | None = node
    while link is not None:
        if (past := link.mark) is not None and past.checkpointed:
            found.append(link.position)
        link = link.parent
    found.reverse()
    return tuple(found)
