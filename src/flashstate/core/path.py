"""The token prefixes that states are filed under: what a request presents, and what the tree keeps of it."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from typing import Protocol, TypeVar, overload

R = TypeVar("R", bound="TokenRun")


class TokenRun(Protocol):
    """A stretch of tokens. `array("q")` is one; a host that only counts tokens may have a shorter form.

    Such a form may have `common_length(other)`, the tokens that both begin with.
    """

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: int, /) -> int: ...

    @overload
    def __getitem__(self: R, index: slice, /) -> R: ...

    def __add__(self: R, after: R, /) -> R: ...


class TokenPath(Protocol):
    """Tokens of one request, as a host presents them. Equal tokens in unequal namespaces never match."""

    @property
    def namespace(self) -> Hashable:
        """What must be equal before tokens are compared: cache salt, LoRA adapter."""

    def __len__(self) -> int:
        """Known tokens."""

    def token(self, position: int) -> int:
        """The token at `position`."""

    def tokens(self, start: int, stop: int) -> TokenRun:
        """Tokens [start, stop). Equal tokens give equal runs: always of the same type in one tree."""

    def key(self, blocks: int) -> Hashable:
        """Identity of the whole prefix of `blocks` full blocks (a chained hash will do), blocks >= 1."""


class Tokens:
    """A `TokenPath` over a plain sequence of token ids, for hosts that have no hashes of their own."""

    __slots__ = ("_ids", "_keys", "block_tokens", "namespace")

    def __init__(self, ids: Sequence[int], block_tokens: int, namespace: Hashable = None) -> None:
        self._ids = ids if isinstance(ids, array) else array("q", ids)
        self._keys: list[int] = []
        self.block_tokens = block_tokens
        self.namespace = namespace

    def __len__(self) -> int:
        return len(self._ids)

    def token(self, position: int) -> int:
        return self._ids[position]

    def tokens(self, start: int, stop: int) -> array[int]:
        return self._ids[start:stop]

    def key(self, blocks: int) -> int:
        while len(self._keys) < blocks:
            start = len(self._keys) * self.block_tokens
            block = self._ids[start : start + self.block_tokens].tobytes()
            self._keys.append(hash((self._keys[-1] if self._keys else None, block)))
        return self._keys[blocks - 1]


class Piece:
    """Tokens [start, stop) of a filed prefix, with the keys of the block boundaries inside. Immutable."""

    __slots__ = ("block_tokens", "ids", "keys", "start", "stop")

    def __init__(self, start: int, ids: TokenRun, keys: list[Hashable], block_tokens: int) -> None:
        self.start = start
        self.stop = start + len(ids)
        self.ids = ids
        self.keys = keys
        self.block_tokens = block_tokens

    @classmethod
    def of(cls, path: TokenPath, start: int, stop: int, block_tokens: int) -> Piece:
        first, last = start // block_tokens, stop // block_tokens
        keys = [path.key(blocks) for blocks in range(first + 1, last + 1)] if first < last else []
        return cls(start, path.tokens(start, stop), keys, block_tokens)

    def split(self, position: int) -> tuple[Piece, Piece]:
        cut = position - self.start
        boundaries = position // self.block_tokens - self.start // self.block_tokens
        return (
            Piece(self.start, self.ids[:cut], self.keys[:boundaries], self.block_tokens),
            Piece(position, self.ids[cut:], self.keys[boundaries:], self.block_tokens),
        )

    def join(self, after: Piece) -> Piece:
        assert self.stop == after.start, (self.stop, after.start)
        return Piece(self.start, self.ids + after.ids, self.keys + after.keys, self.block_tokens)

    def match(self, path: TokenPath, start: int, stop: int, boundary: int) -> int:
        """Position up to which `path` equals this piece in [start, stop), given that it does up to `start`.

        `boundary` is the next block boundary, known to have unequal keys if `stop` reaches it.
        """
        end, first = min(stop, boundary), self.start
        whole = start == first and end == self.stop
        mine = self.ids if whole else self.ids[start - first : end - first]
        theirs = path.tokens(start, end)
        if mine != theirs:
            return start + common_length(mine, theirs)
        # Equal tokens under unequal keys: they differ in something the tokens do not show. No match.
        return end if end < boundary else start


def common_length(a: TokenRun, b: TokenRun) -> int:
    """Tokens that both runs begin with. O(log tokens) comparisons of slices, unless the runs know a shorter way."""
    known = getattr(a, "common_length", None)
    if known is not None:
        return int(known(b))
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
