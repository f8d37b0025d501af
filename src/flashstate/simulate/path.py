"""Token paths without tokens: a prompt as stretches of what its conversation's turns brought in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from typing import Final, overload

_SOURCE_BITS = 24
"""A token is its source's number and its position; no prompt is longer than 2**24 tokens."""


class Run:
    """A stretch of made-up tokens: (source, start, stop) pieces in order, adjoining ones of a source joined.

    The token at a position is named by who brought it in and where, so equal pieces are equal tokens.
    """

    __slots__ = ("length", "pieces")

    def __init__(self, pieces: tuple[tuple[int, int, int], ...], length: int) -> None:
        self.pieces = pieces
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.pieces == other.pieces

    def __hash__(self) -> int:
        return hash(self.pieces)

    @overload
    def __getitem__(self, index: int, /) -> int: ...

    @overload
    def __getitem__(self, index: slice, /) -> Run: ...

    def __getitem__(self, index: int | slice, /) -> int | Run:
        if isinstance(index, slice):
            start, stop, _ = index.indices(self.length)
            return self if stop - start == self.length else self._slice(start, stop)
        for source, start, stop in self.pieces:
            if index < stop - start:
                return source << _SOURCE_BITS | start + index
            index -= stop - start
        raise IndexError(index)

    def common_length(self, other: Run) -> int:
        """Tokens that both begin with."""
        common = 0
        for mine, theirs in zip(self.pieces, other.pieces, strict=False):
            source, start, stop = mine
            if mine != theirs:
                same = theirs[0] == source and theirs[1] == start
                return common + min(stop, theirs[2]) - start if same else common
            common += stop - start
        return common

    def _slice(self, start: int, stop: int) -> Run:
        if start >= stop:
            return _NO_TOKENS
        length = stop - start
        if len(self.pieces) == 1:
            ((source, first, _),) = self.pieces
            return Run(((source, first + start, first + stop),), length)
        pieces = []
        for source, first, last in self.pieces:
            if start < last - first:
                pieces.append((source, first + max(start, 0), min(last, first + stop)))
            start -= last - first
            stop -= last - first
            if stop <= 0:
                break
        return Run(tuple(pieces), length)

    def __add__(self, after: Run, /) -> Run:
        length = self.length + after.length
        if self.pieces and after.pieces:
            source, start, stop = self.pieces[-1]
            follows, first, last = after.pieces[0]
            if source == follows and stop == first:
                return Run((*self.pieces[:-1], (source, start, last), *after.pieces[1:]), length)
        return Run(self.pieces + after.pieces, length)


_NO_TOKENS: Final = Run((), 0)


class SimPath:
    """The prompt and output of one turn: a prefix of an earlier turn's path, then tokens of its own.

    A `TokenPath`. `source` must be unique in the conversation: a token's identity then names its whole prefix.
    """

    __slots__ = ("_bounds", "_keys", "_keys_within", "_sources", "_stop", "block_tokens", "namespace")

    def __init__(
        self,
        namespace: Hashable,
        block_tokens: int,
        bounds: tuple[int, ...],
        sources: tuple[int, ...],
        stop: int,
    ) -> None:
        assert len(bounds) == len(sources) and stop < 1 << _SOURCE_BITS, (bounds, sources, stop)
        self.namespace = namespace
        self.block_tokens = block_tokens
        self._bounds = bounds
        """Where each stretch starts, ascending from 0."""
        self._sources = sources
        self._stop = stop
        self._keys: list[int] = []
        """Those worked out so far: a run asks for each a hundred times."""
        self._keys_within: tuple[int, list[int]] = (block_tokens, self._keys)
        """Those of the last `within`, for the next: a key names neither the namespace nor the play."""

    @classmethod
    def first(cls, namespace: Hashable, block_tokens: int, source: int, stop: int) -> SimPath:
        """A path of nothing but its own tokens."""
        return cls(namespace, block_tokens, (0,), (source,), stop)

    def branch(self, keep: int, source: int, stop: int) -> SimPath:
        """The path that has this one's first `keep` tokens, then its own up to `stop`."""
        assert 0 <= keep <= min(stop, self._stop), (keep, stop, self._stop)
        kept = bisect_right(self._bounds, keep - 1) if keep else 0
        bounds, sources = self._bounds[:kept], self._sources[:kept]
        if keep < stop:
            bounds, sources = (*bounds, keep), (*sources, source)
        return SimPath(self.namespace, self.block_tokens, bounds, sources, stop)

    def cut(self, stop: int) -> SimPath:
        """The first `stop` tokens."""
        assert stop <= self._stop, (stop, self._stop)
        path = SimPath(self.namespace, self.block_tokens, self._bounds, self._sources, stop)
        path._keys = self._keys
        return path

    def within(self, namespace: Hashable, block_tokens: int) -> SimPath:
        """The same tokens in another namespace."""
        path = SimPath(namespace, block_tokens, self._bounds, self._sources, self._stop)
        if self._keys_within[0] != block_tokens:
            self._keys_within = block_tokens, path._keys
        path._keys = self._keys_within[1]
        return path

    def __len__(self) -> int:
        return self._stop

    def token(self, position: int) -> int:
        return self._sources[bisect_right(self._bounds, position) - 1] << _SOURCE_BITS | position

    def tokens(self, start: int, stop: int) -> Run:
        if stop > self._stop:
            stop = self._stop
        length = stop - start
        if length <= 0:
            return _NO_TOKENS
        bounds, sources = self._bounds, self._sources
        after = bisect_right(bounds, start)
        at = after - 1
        if after == len(bounds) or stop <= bounds[after]:
            return Run(((sources[at], start, stop),), length)
        pieces = []
        while start < stop:
            end = bounds[at + 1] if at + 1 < len(bounds) else stop
            end = min(end, stop)
            pieces.append((sources[at], start, end))
            start, at = end, at + 1
        return Run(tuple(pieces), length)

    def key(self, blocks: int) -> int:
        # A token names its prefix, so the block's last one does.
        keys = self._keys
        try:
            return keys[blocks - 1]
        except IndexError:
            keys += [self.token(n * self.block_tokens - 1) for n in range(len(keys) + 1, blocks + 1)]
            return keys[blocks - 1]

    def know_keys(self) -> None:
        """Work out all keys now, so that processes forked later need not."""
        if self._stop >= self.block_tokens:
            self.key(self._stop // self.block_tokens)
