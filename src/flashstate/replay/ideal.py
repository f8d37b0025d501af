"""How far a perfect cache could have resumed a prompt: exact, by the tokens themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]


class ComputedPrefixes:
    """Everything the server has computed so far, as a radix tree over tokens.

    Adding and looking up cost the length of the sequence, however many were added; memory grows with the
    tokens not seen before.
    """

    def __init__(self) -> None:
        self._root = _Node(np.empty(0, np.int32))

    def add(self, consumed: Tokens) -> None:
        """Files a finished request: the tokens its state has consumed (all but the last of its output)."""
        node, depth = self._root, 0
        while depth < len(consumed):
            child = node.children.get(int(consumed[depth]))
            if child is None:
                node.children[int(consumed[depth])] = _Node(consumed[depth:].copy())
                return
            same = _common(child.edge, consumed[depth:])
            if same < len(child.edge):
                child = node.split(child, same)
            node, depth = child, depth + same

    def longest(self, prompt: Tokens) -> int:
        """Position, in tokens, up to which the prompt has been computed before; at most its length less one.

        (The last token must be computed again in any case: its logits are what is asked for.)
        """
        node, depth = self._root, 0
        while depth < len(prompt):
            child = node.children.get(int(prompt[depth]))
            if child is None:
                break
            same = _common(child.edge, prompt[depth:])
            depth += same
            if same < len(child.edge):
                break
            node = child
        return max(0, min(depth, len(prompt) - 1))


class _Node:
    __slots__ = ("children", "edge")

    def __init__(self, edge: Tokens) -> None:
        self.edge = edge  # the tokens from the parent to here
        self.children: dict[int, _Node] = {}

    def split(self, child: _Node, at: int) -> _Node:
        """Puts a node into the edge to `child`, `at` tokens down."""
        middle = _Node(child.edge[:at])
        child.edge = child.edge[at:]
        middle.children[int(child.edge[0])] = child
        self.children[int(middle.edge[0])] = middle
        return middle


def _common(a: Tokens, b: Tokens) -> int:
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n
