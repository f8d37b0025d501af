"""Prompts that wait or run now, and where they part from one another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator

from flashstate.core.path import TokenPath, common_length

_Level = dict[Hashable, None]


class LivePrompts:
    """Prompts not yet computed to their end, filed by the keys of their blocks, so that none is compared with all.

    Adding and removing are O(blocks of the prompt), and so is asking where others part from one.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._paths: dict[Hashable, TokenPath] = {}
        self._levels: defaultdict[Hashable, _Level] = defaultdict(dict)
        """Requests by what their first so many blocks hold, in the order they came."""

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, request: Hashable, path: TokenPath) -> None:
        """`request` came. Idempotent."""
        if request not in self._paths:
            self._paths[request] = path
            for key in self._keys(path):
                self._levels[key][request] = None

    def remove(self, request: Hashable) -> None:
        """`request` is computed to its prompt's end, or gone. Idempotent."""
        path = self._paths.pop(request, None)
        for key in () if path is None else self._keys(path):
            level = self._levels[key]
            level.pop(request, None)
            if not level:
                del self._levels[key]

    def partings(self, path: TokenPath, request: Hashable = None) -> Iterator[tuple[int, Hashable]]:
        """Where other prompts part from `path`, the deepest first, and one that does: at most one for each block.

        Of several that part within a block the one that came last. `request`: whose path it is.
        """
        levels = [self._levels.get(key, {}) for key in self._keys(path)]
        deeper: _Level = {}
        for blocks in range(len(levels) - 1, -1, -1):
            level = levels[blocks]
            if len(level) > len(deeper):
                other = next((o for o in reversed(level) if o not in deeper and o != request), None)
                if other is not None:
                    start = blocks * self._block_tokens
                    yield start + self._common(path, self._paths[other], start), other
            deeper = level

    def shared(self, request: Hashable) -> tuple[int, ...]:
        """Positions where other live prompts part from `request`, ascending; none at 0."""
        path = self._paths.get(request)
        found = {} if path is None else {position for position, _ in self.partings(path, request)}
        return tuple(sorted(position for position in found if position))

    def _keys(self, path: TokenPath) -> Iterator[Hashable]:
        """What the first 0, 1, 2, ... blocks hold. Grows with the path: what is filed is the prompt as it came."""
        yield (path.namespace,)
        for blocks in range(1, len(path) // self._block_tokens + 1):
            yield path.namespace, path.key(blocks)

    def _common(self, path: TokenPath, other: TokenPath, start: int) -> int:
        """Tokens in common from `start` on, less than a block: their keys differ beyond."""
        stop = min(start + self._block_tokens - 1, len(path), len(other))
        return common_length(path.tokens(start, stop), other.tokens(start, stop))
