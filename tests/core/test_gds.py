"""GreedyDual-Size worked by hand: blocks of 4 tokens, checkpoints of 3 blocks, a second a token."""

from __future__ import annotations

import pytest

from flashstate.core.policies.gds import GreedyDualSize
from tests.core.host import Host, conversation

A, B = conversation(1, 100), conversation(2, 100)


def density(host: Host, tokens: list[int]) -> float:
    policy = host.cache.policy
    assert isinstance(policy, GreedyDualSize)
    return policy.density(host.unit(tokens))


def test_density_is_restore_cost_a_block() -> None:
    host = Host("gds")
    host.capture(A[:8])
    assert density(host, A[:8]) == 8 / (3 + 2)
    host.capture(A[:18])
    # Superseded: its KV serves the deeper state, so it would free its checkpoint alone.
    assert density(host, A[:8]) == 8 / 3
    # From 8 to 18: blocks 2, 3 and the partly filled 4.
    assert density(host, A[:18]) == 10 / (3 + 3)


def test_a_partly_filled_block_stays_with_the_state_above() -> None:
    host = Host("gds")
    host.capture(A[:6])
    host.capture(A[:8])
    assert host.unit(A[:6]).size_blocks == 3
    # The block holding tokens 4-7 also serves the state at 6.
    assert host.unit(A[:8]).size_blocks == 3
    host.capture(A[:7] + B[:3])
    # With two states below, neither alone keeps it.
    assert host.unit(A[:8]).size_blocks == 3 + 1
    assert host.unit(A[:6]).size_blocks == 3


def test_every_attention_group_counts() -> None:
    host = Host("gds", width=2)
    host.capture(A[:8])
    assert host.unit(A[:8]).size_blocks == 3 + 2 * 2


def test_an_inner_state_frees_only_its_checkpoint_and_the_fallback_moves() -> None:
    host = Host("gds")
    host.capture(A[:4])
    host.capture(A[:64])
    # H: 4/3 above, 60/18 below.
    assert host.unit(A[:64]).fallback == 4
    assert host.evict() == (4, 3)
    assert host.unit(A[:64]).fallback == 0
    assert density(host, A[:64]) == 64 / (3 + 16)
    assert host.evict() == (64, 3 + 16)
    assert host.cache.resident_blocks == 0
    assert not host.held


def test_the_cheaper_leaf_goes_before_the_state_above_it() -> None:
    host = Host("gds")
    host.capture(A[:8])
    host.capture(A[:16])
    # H: 8/3 above, 8/5 below; the upper one then holds its KV alone again: 8/5.
    assert host.evict() == (16, 5)
    assert density(host, A[:8]) == 8 / 5


def test_watermark_and_stamps() -> None:
    host = Host("gds")
    policy = host.cache.policy
    host.capture(A[:4])  # 4/4
    host.capture(B[:16])  # 16/7
    assert host.evict() == (4, 4)
    assert policy.watermark == 1.0
    assert host.unit(B[:16]).stamp == 0.0
    host.capture(A[:8])
    assert host.unit(A[:8]).stamp == 1.0
    # 1 + 8/5 = 2.6 against 0 + 16/7 = 2.29: what was used lately outlives what is denser.
    assert host.evict() == (16, 7)
    assert policy.watermark == pytest.approx(16 / 7)
    # Resuming stamps, and so does the end of the request that did.
    host.resume("r", A[:9])
    assert host.unit(A[:8]).stamp == policy.watermark
    policy.watermark = 5.0
    host.cache.release("r", 1.0)
    assert host.unit(A[:8]).stamp == 5.0


def test_the_watermark_never_falls() -> None:
    host = Host("gds")
    host.capture(A[:8])
    host.cache.policy.watermark = 3.0
    assert host.evict() == (8, 5)
    assert host.cache.policy.watermark == 3.0


def test_admission() -> None:
    host = Host("gds")
    host.capture(A[:8])  # 8/5
    refused = host.capture(B[:4], room=False)  # 4/4: the next victim
    assert (refused.kept, refused.taken, refused.freed) == (False, frozenset(), frozenset())
    assert host.cache.counters.admissions_refused == 1
    assert len(host.cache) == 1
    assert host.cache.history.precedent(host.path(B), 50).checkpoints == (4,)
    assert host.capture(B[:16], room=False).kept  # 16/7
    assert host.capture(conversation(3, 4), room=True).kept


def test_a_newcomer_is_stamped_at_the_watermark() -> None:
    host = Host("gds")
    host.capture(A[:8])  # 0 + 8/5
    host.cache.policy.watermark = 1.0
    assert host.capture(B[:4], room=False).kept  # 1 + 4/4
    assert host.evict() == (8, 5)


def test_older_first_among_equals() -> None:
    host = Host("gds")
    for first in (3, 1, 2):
        host.capture(conversation(first, 8))
    host.resume("r", conversation(3, 9))
    host.cache.release("r", 0.0)
    order = []
    while (victim := host.cache.queue.peek(0.0)) is not None:
        order.append(victim[0].node.piece.ids[0])
        host.evict()
    assert order == [3, 1, 2]


def test_a_held_state_stays_until_nothing_else_is_left() -> None:
    host = Host("gds")
    host.capture(A[:8])
    host.capture(B[:16])
    assert host.resume("r", A[:9]) == 8
    assert host.evict() == (16, 7)
    # Its request has a copy of the state and keeps the full blocks.
    assert host.evict() == (8, 3)
    assert host.cache.counters.evictions == {"leaf": 1, "held": 1}
    assert host.evict() is None
    assert len(host.cache.release("r", 0.0)) == 2
    assert host.cache.resident_blocks == 0
