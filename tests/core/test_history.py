"""The memory of what once existed: bounded, honest, oldest first to go."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flashstate.core.check import check_history
from flashstate.core.history import History
from flashstate.core.path import Tokens
from tests.core.host import conversation

BLOCK = 3
UNBOUNDED = 10**9

Prefix = tuple[int, ...]
prefix = st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple)
event = st.tuples(st.sampled_from(["computed", "checkpoint"]), prefix)


def play(history: History, events: list[tuple[str, Prefix]]) -> None:
    for kind, tokens in events:
        path = Tokens(tokens, BLOCK)
        if kind == "computed":
            history.computed(path, len(tokens))
        else:
            history.checkpoint_taken(path, len(tokens))
        check_history(history)
        assert history.tokens <= history.max_tokens


def common(a: Prefix, b: Prefix) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(st.lists(event, max_size=25), prefix)
def test_unbounded_it_forgets_nothing(events: list[tuple[str, Prefix]], asked: Prefix) -> None:
    history = History(BLOCK, UNBOUNDED)
    play(history, events)
    got = history.precedent(Tokens(asked, BLOCK), len(asked))
    assert got.computed == max((common(asked, tokens) for _, tokens in events), default=0)
    taken = {len(t) for kind, t in events if kind == "checkpoint" and asked[: len(t)] == t}
    assert got.checkpoints == tuple(sorted(taken))


@settings(max_examples=300)
@given(st.lists(event, max_size=40), st.integers(12, 40), prefix)
def test_bounded_it_overstates_nothing(events: list[tuple[str, Prefix]], bound: int, asked: Prefix) -> None:
    history = History(BLOCK, bound)
    play(history, events)
    got = history.precedent(Tokens(asked, BLOCK), len(asked))
    assert got.computed <= max((common(asked, tokens) for _, tokens in events), default=0)
    assert set(got.checkpoints) <= {
        len(t) for kind, t in events if kind == "checkpoint" and asked[: len(t)] == t
    }
    if events:
        # The latest is never forgotten.
        latest = events[-1][1]
        assert history.precedent(Tokens(latest, BLOCK), len(latest)).computed == len(latest)


@given(st.lists(st.integers(0, 8), max_size=40), st.integers(1, 6))
def test_the_ends_used_longest_ago_go_first(firsts: list[int], room: int) -> None:
    history = History(BLOCK, room * 10)
    for first in firsts:
        history.computed(Tokens(conversation(first, 10), BLOCK), 10)
    latest = list(dict.fromkeys(reversed(firsts)))
    for rank, first in enumerate(latest):
        known = history.precedent(Tokens(conversation(first, 10), BLOCK), 10).computed
        assert known == (10 if rank < room else 0), (first, rank)


def test_the_latest_end_below_is_remembered_at_every_position() -> None:
    history = History(BLOCK, UNBOUNDED)
    a = conversation(1, 30)
    history.computed(Tokens(a, BLOCK), 30)
    history.computed(Tokens([*a[:20], 7, 7, 7], BLOCK), 23)
    history.computed(Tokens([*a[:10], 8, 8], BLOCK), 12)

    def latest_end(tokens: list[int]) -> int | None:
        return history.precedent(Tokens(tokens, BLOCK), len(tokens)).latest_end

    assert latest_end(a) == 30
    assert latest_end([*a[:25], 9]) == 30
    assert latest_end([*a[:20], 7, 9]) == 23
    assert latest_end([*a[:15], 9]) == 23
    assert latest_end([*a[:5], 9]) == 12
    assert latest_end([9]) is None


def test_equal_tokens_in_unequal_namespaces_are_strangers() -> None:
    history = History(BLOCK, UNBOUNDED)
    history.computed(Tokens(range(9), BLOCK, "salt"), 9)
    assert history.precedent(Tokens(range(9), BLOCK, "pepper"), 9).computed == 0
    assert history.precedent(Tokens(range(9), BLOCK, "salt"), 9).computed == 9
