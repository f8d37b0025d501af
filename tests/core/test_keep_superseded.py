"""Superseded states kept for some turns, for clients that edit their context."""

from __future__ import annotations

from flashstate.core.state import PROMPT_BOUNDARY
from tests.core.host import Host, conversation

A, B = conversation(1, 300), conversation(2, 300)


def test_a_superseded_state_stays_a_leaf_for_k_turns() -> None:
    host = Host("keep-superseded", keep_superseded_turns=2)
    host.capture(B[:40])  # 40/13: less than any superseded state's density
    for end in (100, 120, 140):
        host.capture(A[:end])
    # Two turns after the state at 100: it still counts as a leaf, at 100/3.
    assert host.unit(A[:100]).turns_above == 2
    assert host.cache.queue.peek(0.0)[0].position == 140  # type: ignore[index]
    host.capture(A[:200])
    # Three turns: inner, and so gone before any leaf.
    assert host.evict() == (100, 3)


def test_only_request_ends_are_turns() -> None:
    host = Host("keep-superseded", keep_superseded_turns=0)
    host.capture(A[:100])
    host.capture(A[:120], kind=PROMPT_BOUNDARY)
    assert host.unit(A[:100]).turns_above == 0
    host.capture(A[:140])
    assert host.unit(A[:100]).turns_above == 1
    assert host.unit(A[:120]).turns_above == 1


def test_zero_turns_is_leaf_last() -> None:
    keep, plain = Host("keep-superseded", keep_superseded_turns=0), Host("leaf-last")
    for host in (keep, plain):
        for tokens in (A, B):
            for end in (40, 90, 95, 130):
                host.capture(tokens[:end])
    assert [keep.evict() for _ in range(8)] == [plain.evict() for _ in range(8)]
