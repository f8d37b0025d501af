from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flashstate.replay.ideal import ComputedPrefixes, Tokens

# Few different tokens, so that prefixes are really shared.
sequences = st.lists(st.integers(0, 2), min_size=1, max_size=14)


def tokens(values: list[int]) -> Tokens:
    return np.array(values, dtype=np.int32)


def brute_force(computed: list[list[int]], prompt: list[int]) -> int:
    best = 0
    for consumed in computed:
        same = next((i for i, (a, b) in enumerate(zip(consumed, prompt, strict=False)) if a != b), None)
        best = max(best, min(len(consumed), len(prompt)) if same is None else same)
    return min(best, len(prompt) - 1)


@given(st.lists(st.tuples(sequences, st.booleans()), max_size=20), sequences)
def test_agrees_with_brute_force(events: list[tuple[list[int], bool]], last: list[int]) -> None:
    prefixes = ComputedPrefixes()
    computed: list[list[int]] = []
    for values, is_added in [*events, (last, False)]:
        assert prefixes.longest(tokens(values)) == brute_force(computed, values)
        if is_added:
            prefixes.add(tokens(values))
            computed.append(values)


def test_the_last_prompt_token_is_never_reused() -> None:
    prefixes = ComputedPrefixes()
    prefixes.add(tokens([1, 2, 3, 4]))
    assert prefixes.longest(tokens([1, 2, 3, 4])) == 3
    assert prefixes.longest(tokens([1, 2, 3, 4, 5])) == 4


def test_nothing_is_shared_with_nothing() -> None:
    prefixes = ComputedPrefixes()
    assert prefixes.longest(tokens([1, 2])) == 0
    prefixes.add(tokens([]))
    assert prefixes.longest(tokens([1, 2])) == 0


def test_what_is_filed_does_not_change_with_the_caller_s_array() -> None:
    prefixes, mine = ComputedPrefixes(), tokens([1, 2, 3])
    prefixes.add(mine)
    mine[:] = 9
    assert prefixes.longest(tokens([1, 2, 3, 4])) == 3
