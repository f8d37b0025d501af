"""Invariants of a `HybridCache`. Scans everything: for tests and for debugging, never on a hot path."""

from __future__ import annotations

from collections import Counter

from flashstate.core.cache import HybridCache
from flashstate.core.history import History
from flashstate.core.state import RecoveryUnit
from flashstate.core.tree import Node


def check_cache(cache: HybridCache, now: float) -> None:
    """Raise AssertionError naming the value if anything in `cache` contradicts anything else."""
    held: Counter[int] = Counter()
    units = 0
    for node in cache.tree.nodes():
        _check_node(cache, node)
        held.update(block for kv in node.blocks for block in kv)
        if node.mark is not None:
            units += 1
            held.update(node.mark.checkpoint.blocks)
            _check_unit(cache, node.mark)
    twice = {block: n for block, n in held.items() if n > 1}
    assert not twice, f"blocks held twice: {twice}"
    _check_order(cache, now)
    assert len(held) == cache.resident_blocks, (len(held), cache.resident_blocks)
    assert units == len(cache.queue), (units, len(cache.queue))
    assert all(unit in cache.queue for unit in cache._parked.values()), "parked at a state that is gone"
    holds = Counter(id(node) for node in cache._holds.values())
    lives = {id(node): node.live for node in cache.tree.nodes() if node.live}
    assert holds == lives, (holds, lives)
    check_history(cache.history)


def check_history(history: History) -> None:
    """The memory of what once existed is consistent and within its bound."""
    tokens = 0
    for node in history.nodes():
        assert node.mark is not None and not node.blocks
        assert node.children or node in history._ends, (
            f"a leaf at {node.position} that would never be forgotten"
        )
        assert len(node.children) > 1 or history.is_needed(node), f"a useless node at {node.position}"
        tokens += len(node.piece.ids)
    assert tokens == history.tokens, (tokens, history.tokens)
    assert tokens <= history.max_tokens or len(history._ends) <= 1, (tokens, history.max_tokens)


def _check_node(cache: HybridCache, node: Node[RecoveryUnit]) -> None:
    tree, parent = cache.tree, node.parent
    assert parent is not None
    assert parent.children[node.piece.ids[0]] is node, node.position
    assert node.piece.start == parent.position, (node.piece.start, parent.position)
    assert len(node.piece.keys) == node.position // tree.block_tokens - node.piece.start // tree.block_tokens
    ends_inside = node.position % tree.block_tokens != 0
    terminal = int(ends_inside and node.mark is not None and not node.children)
    expected = node.position // tree.block_tokens - parent.position // tree.block_tokens + terminal
    assert len(node.blocks) == expected, (len(node.blocks), expected, node.position)
    assert len(node.children) > 1 or tree.is_needed(node), f"a useless node at {node.position}"
    assert node.mark is not None or not node.live or not ends_inside, node.position


def _check_unit(cache: HybridCache, unit: RecoveryUnit) -> None:
    assert unit.node.mark is unit and unit.node.position == unit.position, unit.position
    assert unit in cache.queue, unit.position
    parked = sum(parked is unit for parked in cache._parked.values())
    assert unit.parked == parked, (unit.parked, parked)


def _check_order(cache: HybridCache, now: float) -> None:
    """No unit that could go comes up later than its rank says."""
    bounds = cache.queue.lower_bounds(now)
    for unit in cache.units():
        if unit.is_held or unit.parked:
            continue
        assert unit in bounds, f"the unit at {unit.position} is never considered for eviction"
        exact = (cache.policy.rank(unit, now), unit.serial)
        assert bounds[unit] <= exact, (
            f"the unit at {unit.position} is queued at {bounds[unit]}, above its rank {exact}"
        )
