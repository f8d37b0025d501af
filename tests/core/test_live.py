"""Where live prompts part from one another, against comparing all of them token by token."""

from __future__ import annotations

from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.live import LivePrompts
from flashstate.core.path import Tokens

BLOCK = 4

prompts = st.lists(st.lists(st.integers(0, 1), max_size=14), min_size=2, max_size=6)


def make_path(tokens: list[int], namespace: object = None) -> Tokens:
    return Tokens(tokens, BLOCK, namespace)


def make_live(tokens: list[list[int]]) -> LivePrompts:
    live = LivePrompts(BLOCK)
    for number, prompt in enumerate(tokens):
        live.add(number, make_path(prompt))
    return live


def plainly_common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def whole_blocks(tokens: int) -> int:
    return tokens // BLOCK


@given(prompts)
def test_partings_are_what_comparing_every_token_says(tokens: list[list[int]]) -> None:
    live = make_live(tokens)
    for number, prompt in enumerate(tokens):
        common = {
            other: plainly_common(prompt, with_) for other, with_ in enumerate(tokens) if other != number
        }
        found = list(live.partings(make_path(prompt), number))
        assert [position for position, _ in found] == sorted((p for p, _ in found), reverse=True)
        for position, other in found:
            # Prompts equal to the last whole block are told apart no further than that block's last token but one.
            assert position in (common[other], common[other] - 1), (position, common[other])
            latest = [o for o, n in common.items() if whole_blocks(n) == whole_blocks(common[other])]
            assert other == max(latest)
        assert {whole_blocks(common[other]) for _, other in found} == {
            whole_blocks(n) for n in common.values()
        }


@given(prompts, st.data())
def test_a_prompt_that_is_gone_is_nowhere(tokens: list[list[int]], data: st.DataObject) -> None:
    live = make_live(tokens)
    gone = data.draw(st.integers(0, len(tokens) - 1))
    live.remove(gone)
    live.remove(gone)
    assert len(live) == len(tokens) - 1
    assert live.shared(gone) == ()
    for number, prompt in enumerate(tokens):
        assert all(other != gone for _, other in live.partings(make_path(prompt), number))
    for number in range(len(tokens)):
        live.remove(number)
    assert not live._levels


def test_equal_tokens_under_another_salt_are_not_common() -> None:
    live = LivePrompts(BLOCK)
    live.add("salted", make_path([1] * 9, "salt"))
    assert list(live.partings(make_path([1] * 9))) == []


def test_a_block_that_differs_in_what_tokens_do_not_show_is_not_common() -> None:
    class Hidden(Tokens):
        def key(self, blocks: int) -> int:
            return super().key(blocks) + (blocks > 1)

    live = LivePrompts(BLOCK)
    live.add("hidden", Hidden([1] * 10, BLOCK))
    ((position, _),) = live.partings(make_path([1] * 10))
    assert BLOCK <= position < 2 * BLOCK


def test_a_thousand_prompts_with_a_common_start_are_not_compared_with_one_another() -> None:
    """All pairs would take minutes."""
    live, shared = LivePrompts(160), list(range(2000))
    paths = [Tokens(shared + [5000 + number] * 500, 160) for number in range(1000)]
    began = perf_counter()
    for number, path in enumerate(paths):
        live.add(number, path)
        assert live.shared(number) == ((2000,) if number else ())
    assert perf_counter() - began < 10
