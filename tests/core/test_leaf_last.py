"""Leaf-last: tiers before priorities."""

from __future__ import annotations

from tests.core.host import Host, conversation

A, B, C = (conversation(first, 200) for first in (1, 2, 3))


def test_inner_goes_before_leaf_whatever_it_is_worth() -> None:
    host = Host("leaf-last")
    host.capture(A[:100])
    host.capture(A[:104])
    host.capture(B[:4])
    # Densities: 100/3 inner, 4/4 and 4/4 leaves.
    assert host.evict() == (100, 3)
    assert host.evict() == (4, 4)


def test_a_branch_point_is_a_leaf() -> None:
    host = Host("leaf-last")
    host.capture(A[:100])
    host.capture(A[:104])
    host.capture(A[:100] + B[:60])
    assert host.unit(A[:100]).tier == "branch"
    # 100/3 at the branch point, 4/4 and 60/18 below it.
    assert host.evict() == (104, 4)
    # One branch left: superseded.
    assert host.unit(A[:100]).tier == "inner"
    assert host.evict() == (100, 3)


def test_priority_orders_each_tier() -> None:
    host = Host("leaf-last")
    for tokens, inner in ((A, 80), (B, 40), (C, 60)):
        host.capture(tokens[:inner])
        host.capture(tokens[: inner + 4])
    assert [host.evict() for _ in range(3)] == [(40, 3), (60, 3), (80, 3)]
    # Leaves: 84/24, 44/14, 64/19 seconds a block.
    assert [host.evict() for _ in range(3)] == [(44, 14), (64, 19), (84, 24)]


def test_the_watermark_rises_only_when_a_leaf_goes() -> None:
    host = Host("leaf-last")
    host.capture(A[:100])
    host.capture(A[:104])
    host.evict()
    assert host.cache.policy.watermark == 0.0
    host.evict()
    assert host.cache.policy.watermark == 104 / (3 + 26)


def test_an_idle_leaf_counts_as_inner() -> None:
    host = Host("leaf-last")
    host.capture(A[:100], now=0.0)  # 100/28
    host.capture(B[:4], now=30.0)  # 4/4
    assert host.cache.queue.peek(59.9) is not None
    assert host.cache.queue.peek(59.9)[0] is host.unit(B[:4])  # type: ignore[index]
    assert host.evict(60.0) == (100, 28)
    assert host.cache.policy.watermark == 0.0


def test_use_ends_idleness() -> None:
    host = Host("leaf-last")
    host.capture(A[:100], now=0.0)
    host.capture(B[:4], now=30.0)
    host.resume("r", A[:101], now=50.0)
    host.cache.release("r", 55.0)
    assert host.evict(89.0) == (4, 4)
    assert host.cache.policy.watermark == 1.0


def test_leaves_never_idle_when_told_so() -> None:
    host = Host("leaf-last", leaf_idle_s=None)
    host.capture(A[:100], now=0.0)
    host.capture(B[:4], now=30.0)
    assert host.evict(1e9) == (4, 4)
