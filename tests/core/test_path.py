"""Filed pieces split and join; keys name prefixes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.path import Piece, Tokens

token = st.integers(0, 1)
block = st.integers(1, 5)


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
