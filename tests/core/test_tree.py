"""Finding filed prefixes against comparing token by token."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.path import Tokens
from flashstate.core.tree import Node, PrefixTree

tokens = st.lists(st.integers(0, 1), min_size=1, max_size=24)
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


def make_tree(size: int, filed: Sequence[Sequence[int]]) -> PrefixTree[int]:
    tree: PrefixTree[int] = PrefixTree(size)
    for ids in filed:
        tree.insert(Tokens(ids, size), len(ids), ()).node.mark = len(ids)
    return tree


@given(st.lists(tokens, max_size=6), tokens, st.data(), block)
def test_find_equals_brute_force(
    filed: list[list[int]], asked: list[int], data: st.DataObject, size: int
) -> None:
    limit = data.draw(st.integers(0, len(asked)))
    tree = make_tree(size, filed)
    match = tree.find(Tokens(asked, size), limit)
    assert match.length == max((common(ids, asked[:limit]) for ids in filed), default=0)
    assert match.node.position <= match.length
    assert (match.into is None) == (match.node.position == match.length)
    assert match.into is None or match.into.parent is match.node
    ends = [len(ids) for ids in filed if ids == asked[: len(ids)] and len(ids) <= limit]
    assert [node.position for node in tree.filed(match.node)] == sorted(set(ends), reverse=True)


@given(st.lists(tokens, min_size=1, max_size=8), st.data(), block)
def test_boundaries_follow_what_is_filed(filed: list[list[int]], data: st.DataObject, size: int) -> None:
    tree = make_tree(size, filed)
    marked = [node for node in tree.nodes() if node.mark is not None]
    for node in data.draw(st.permutations(marked)):
        node.mark = None
        tree.discard(node)
        for root in tree.roots.values():
            assert root.boundaries == {key: node for node in tree.nodes() for key in node.piece.keys}
    assert not tree.roots


@given(st.data(), block)
def test_equal_tokens_with_unequal_keys_never_match(data: st.DataObject, size: int) -> None:
    ids = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=24))
    first = data.draw(st.integers(0, len(ids) // size - 1))
    stop = data.draw(st.integers((first + 1) * size, len(ids)))
    tree = make_tree(size, [ids[:stop]])
    assert tree.find(HiddenContent(ids, size, first), len(ids)).length == first * size


def test_a_node_knows_its_root() -> None:
    tree = make_tree(2, [[1, 2, 3, 4], [1, 2, 5]])
    nodes: list[Node[int]] = list(tree.nodes())
    assert {node.root for node in nodes} == set(tree.roots.values())


@given(st.lists(tokens, max_size=6), tokens, st.data(), block)
def test_a_path_asked_again_is_answered_as_a_new_one(
    filed: list[list[int]], asked: list[int], data: st.DataObject, size: int
) -> None:
    """What a root keeps of the last question and the last insertion must not show."""
    tree, path = make_tree(size, filed), Tokens(asked, size)
    for limit in data.draw(st.lists(st.integers(0, len(asked)), max_size=6)):
        tree.find(path, data.draw(st.integers(0, len(asked))))
        answer, again = tree.find(path, limit), tree.find(path, limit)
        if tree.roots:
            assert answer == again == tree.find(Tokens(asked, size), limit)
        step = data.draw(st.sampled_from(("ask", "insert", "take out")))
        if step == "insert" and limit:
            tree.insert(path, limit, ()).node.mark = limit
        nodes = list(tree.nodes())
        if step == "take out" and nodes:
            node = data.draw(st.sampled_from(nodes))
            node.mark = None
            tree.discard(node)
