"""How far live prompts have their tokens in common, against comparing token by token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.live import LivePrompts, common_prefix
from flashstate.core.path import Tokens

BLOCK = 4

prompts = st.lists(st.lists(st.integers(0, 1), max_size=14), min_size=2, max_size=6)


def make_path(tokens: list[int], namespace: object = None) -> Tokens:
    return Tokens(tokens, BLOCK, namespace)


def plainly_common(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(prompts)
def test_each_pair_shares_what_comparing_every_token_says(tokens: list[list[int]]) -> None:
    live = LivePrompts(BLOCK)
    for number, prompt in enumerate(tokens):
        live.add(number, make_path(prompt))
    for number, prompt in enumerate(tokens):
        others = {
            other: common
            for other, with_ in enumerate(tokens)
            if other != number and (common := plainly_common(prompt, with_))
        }
        assert dict(live.partners(number)) == others
        assert live.shared(number) == tuple(sorted(set(others.values())))


@given(prompts, st.data())
def test_a_prompt_that_is_gone_is_nobody_s_partner(tokens: list[list[int]], data: st.DataObject) -> None:
    live = LivePrompts(BLOCK)
    for number, prompt in enumerate(tokens):
        live.add(number, make_path(prompt))
    gone = data.draw(st.integers(0, len(tokens) - 1))
    live.remove(gone)
    live.remove(gone)
    assert gone not in live
    assert live.shared(gone) == ()
    assert all(gone not in dict(live.partners(number)) for number in range(len(tokens)))


def test_equal_tokens_under_another_salt_are_not_common() -> None:
    assert common_prefix(make_path([1] * 9), make_path([1] * 9, "salt"), BLOCK) == 0


def test_a_block_that_differs_in_what_tokens_do_not_show_is_not_common() -> None:
    class Hidden(Tokens):
        def key(self, blocks: int) -> int:
            return super().key(blocks) + (blocks > 1)

    assert common_prefix(make_path([1] * 10), Hidden([1] * 10, BLOCK), BLOCK) == BLOCK
