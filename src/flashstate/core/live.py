"""Prompts that wait or run now, and how far each has its tokens in common with the others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from flashstate.core.path import TokenPath


@dataclass(frozen=True, slots=True)
class _Live:
    path: TokenPath
    shared: dict[Hashable, int]
    """By the other request: tokens in common."""


class LivePrompts:
    """Prompts not yet computed to their end, in the order they came. Compares each newcomer with all: O(prompts)."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._live: dict[Hashable, _Live] = {}

    def __contains__(self, request: Hashable) -> bool:
        return request in self._live

    def add(self, request: Hashable, path: TokenPath) -> None:
        """`request` came. Idempotent."""
        if request in self._live:
            return
        newcomer = _Live(path, {})
        for other, live in self._live.items():
            tokens = common_prefix(path, live.path, self._block_tokens)
            if tokens:
                newcomer.shared[other] = live.shared[request] = tokens
        self._live[request] = newcomer

    def remove(self, request: Hashable) -> None:
        """`request` is computed to its prompt's end, or gone. Idempotent."""
        gone = self._live.pop(request, None)
        for other in gone.shared if gone else ():
            self._live[other].shared.pop(request, None)

    def shared(self, request: Hashable) -> tuple[int, ...]:
        """Positions where another live prompt parts from `request`, ascending, each once."""
        live = self._live.get(request)
        return tuple(sorted(set(live.shared.values()))) if live else ()

    def partners(self, request: Hashable) -> Iterator[tuple[Hashable, int]]:
        """The others, and the tokens in common with each."""
        live = self._live.get(request)
        yield from live.shared.items() if live else ()

    def clear(self) -> None:
        """Forget all."""
        self._live.clear()


def common_prefix(a: TokenPath, b: TokenPath, block_tokens: int) -> int:
    """Tokens that both begin with. O(log blocks) keys, then one block of tokens."""
    if a.namespace != b.namespace:
        return 0
    low, high = 0, min(len(a), len(b)) // block_tokens
    while low < high:
        middle = (low + high + 1) // 2
        if a.key(middle) == b.key(middle):
            low = middle
        else:
            high = middle - 1
    start = low * block_tokens
    stop = min(start + block_tokens, len(a), len(b))
    low, high = start, stop
    while low < high:
        middle = (low + high + 1) // 2
        if a.tokens(start, middle) == b.tokens(start, middle):
            low = middle
        else:
            high = middle - 1
    # Equal tokens under unequal keys differ in something the tokens do not show: nothing of that block is common.
    is_hidden = low == start + block_tokens
    return start if is_hidden else low
