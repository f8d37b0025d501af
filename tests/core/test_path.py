"""Matching of filed pieces against comparing token by token."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.path import Piece, Tokens

token = st.integers(0, 1)
block = st.integers(1, 5)


class HiddenContent(Tokens):
    """Tokens whose blocks from `first` on differ in something the tokens do not show, e.g. an image."""

    def __init__(self, ids: Sequence[int], block_tokens: int, first: int) -> None:
        super().__init__(ids, block_tokens)
        self._first = first

    def key(self, blocks: int) -> Hashable:  # type: ignore[override]
        key = super().key(blocks)
        return ("hidden", key) if blocks > self._first else key


def common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(st.data(), block)
def test_match_equals_brute_force(data: st.DataObject, size: int) -> None:
    filed = data.draw(st.lists(token, min_size=1, max_size=30))
    start = data.draw(st.integers(0, len(filed) - 1))
    stop = data.draw(st.integers(start + 1, len(filed)))
    shared = data.draw(st.integers(start, len(filed)))
    asked = filed[:shared] + data.draw(st.lists(token, min_size=1, max_size=20))
    limit = data.draw(st.integers(start, len(asked)))
    piece = Piece.of(Tokens(filed, size), start, stop, size)
    assert piece.match(Tokens(asked, size), limit) == min(common(filed, asked), stop, limit)


@given(st.data(), block)
def test_equal_tokens_with_unequal_keys_never_match(data: st.DataObject, size: int) -> None:
    tokens = data.draw(st.lists(token, min_size=size, max_size=30))
    first = data.draw(st.integers(0, len(tokens) // size - 1))
    stop = data.draw(st.integers((first + 1) * size, len(tokens)))
    piece = Piece.of(Tokens(tokens, size), 0, stop, size)
    assert piece.match(HiddenContent(tokens, size, first), len(tokens)) == first * size


@given(st.data(), block)
def test_split_pieces_join_again(data: st.DataObject, size: int) -> None:
    tokens = data.draw(st.lists(token, min_size=2, max_size=30))
    start = data.draw(st.integers(0, len(tokens) - 2))
    cut = data.draw(st.integers(start + 1, len(tokens) - 1))
    piece = Piece.of(Tokens(tokens, size), start, len(tokens), size)
    above, below = piece.split(cut)
    assert (above.start, above.stop, below.start, below.stop) == (start, cut, cut, len(tokens))
    again = above.join(below)
    assert (again.start, again.ids, again.keys) == (piece.start, piece.ids, piece.keys)


def test_pieces_that_do_not_meet_do_not_join() -> None:
    path = Tokens(range(8), 4)
    with pytest.raises(AssertionError):
        Piece.of(path, 0, 3, 4).join(Piece.of(path, 4, 8, 4))


def test_a_key_names_the_whole_prefix() -> None:
    a, b = Tokens([1, 2, 3, 4], 2), Tokens([9, 2, 3, 4], 2)
    assert a.key(2) != b.key(2)
    assert a.key(2) == Tokens([1, 2, 3, 4, 5], 2).key(2)
