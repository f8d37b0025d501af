from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from flashstate.traces.blocks import common_blocks
from flashstate.traces.synth.prompts import Ids, Prompts

counts = st.integers(0, 40)
steps = st.lists(
    st.tuples(st.sampled_from(["extend", "rewrite", "go_back"]), counts, counts, st.floats(0, 0.999)),
    max_size=12,
)


def write(prompts: Prompts, step: tuple[str, int, int, float], last: array[int]) -> tuple[int, array[int]]:
    kind, count, kept, version = step
    if kind == "go_back" and prompts.has_left:
        blocks = prompts.go_back(count, version, kept)
    elif kind == "rewrite":
        blocks = prompts.rewrite(count, kept)
    else:
        blocks = prompts.extend(count, kept)
    assert blocks.shared + len(blocks.new) == count
    return blocks.shared, last[: blocks.shared] + blocks.new


@given(counts, steps)
def test_an_id_names_a_whole_prefix(first: int, more: list[tuple[str, int, int, float]]) -> None:
    prompts = Prompts(Ids())
    last = prompts.begin(first, array("q")).new
    seen = [last]
    for step in more:
        shared, now = write(prompts, step, last)
        assert shared == common_blocks(last, now)
        assert prompts.count == len(now)
        seen.append(now)
        last = now
    prefixes: dict[int, tuple[int, ...]] = {}
    for prompt in seen:
        for place, block in enumerate(prompt):
            assert prefixes.setdefault(block, tuple(prompt[: place + 1])) == tuple(prompt[: place + 1])


def test_returns_go_on_with_what_was_left() -> None:
    prompts = Prompts(Ids())
    first = prompts.begin(10, array("q")).new
    rewritten = prompts.rewrite(8, keep=4)
    assert (rewritten.shared, list(rewritten.new)) == (4, [10, 11, 12, 13])
    back = prompts.go_back(9, version=0.0, extra=3)
    assert back.shared == 4
    assert list(back.new) == [*first[4:7], 14, 15]


def test_agents_of_a_session_draw_from_the_same_ids() -> None:
    ids = Ids()
    one = Prompts(ids).begin(5, array("q")).new
    other = Prompts(ids).begin(6, one[:2]).new
    assert list(other) == [0, 1, 5, 6, 7, 8]
