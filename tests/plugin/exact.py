"""Comparing what an engine answered with a replay that reads nothing from its cache."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count, pairwise, takewhile
from math import inf
from statistics import median

from tests.plugin.engine import Answer, Ask, EngineProcess, max_difference
from tests.plugin.lineage import History, Segment

_replays = count(1)

ROUNDING = 0.2
"""What chunks cut otherwise may change in a log-probability of the tiny models (seen: 0.14, with Mamba-2 0.05).

A state one token off changes 0.6 to 1.4 with GDN, 0.06 to 0.2 with Mamba-2.
"""

BATCHED = 0.12
"""What other requests in the same step may change (seen: 0.11): vLLM's matrix products round by the number of rows, on
some CPUs nearly always (an Intel Xeon: 10 of 19 answers of six conversations together), on others hardly ever. The
replay is alone. Tests of one request at a time demand equal bits."""

TIPPED = 0.3
"""What it may change in one token now and then (seen: 0.23, the median of its answer 0.03 and 0.09)."""


@dataclass(frozen=True)
class Compared:
    """A segment of a request's life against its replay."""

    name: str
    segment: Segment
    difference: float
    """The largest of any token."""
    steps: tuple[float, ...]
    """Each token's. A router that rounding tips over moves one in ten by 0.3 (KDA); a wrong state moves all."""

    @property
    def typical(self) -> float:
        """The median token's."""
        return median(self.steps)

    @property
    def is_rounding(self) -> bool:
        """Whether other requests in the same steps explain the difference."""
        return self.difference <= TIPPED and self.typical <= BATCHED


def difference_from_replay(engine: EngineProcess, ask: Ask, answer: Answer, history: History) -> float:
    """Largest difference of any top-20 log-probability from a replay of `ask` by the chunks of `history`."""
    return compared_with_replay(engine, ask, answer, history).difference


def compared_with_replay(engine: EngineProcess, ask: Ask, answer: Answer, history: History) -> Compared:
    """The whole answer against a replay of `ask` by the chunks of `history`."""
    replayed = _replay(engine, ask, answer, history)
    steps = tuple(step_differences(answer, replayed))
    return Compared(ask.name, answer.segments[-1], max_difference(answer, replayed), steps)


def rounded_history(engine: EngineProcess, answer: Answer) -> History:
    """For an answer whose history is not known: other chunks that a replay can follow.

    Where chunks are cut changes the rounding, so this tells a wrong state only by the size of the difference.
    """
    start = answer.segments[0].resumed
    aligned = start // engine.block_size * engine.block_size
    before = tuple((a, b - a) for a, b in pairwise(sorted({0, aligned, start})))
    return (*before, *(chunk for chunk in answer.segments[0].history if chunk[0] >= start))


def step_differences(a: Answer, b: Answer) -> list[float]:
    """The largest |log-probability difference| of each token that both list, up to where the answers part."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a.tokens, b.tokens, strict=False)))
    steps = zip(a.logprobs[: same + 1], b.logprobs, strict=False)
    return [max((abs(x[token] - y[token]) for token in x.keys() & y.keys()), default=inf) for x, y in steps]


def _replay(engine: EngineProcess, ask: Ask, answer: Answer, history: History) -> Answer:
    replayed = engine.ask(
        replace(
            ask,
            name=f"replay{next(_replays)}",
            max_tokens=len(answer.tokens),
            stop_token_ids=(),
            abort_after=None,
            chunks=history,
        )
    )
    assert replayed.cached == 0
    return replayed


def compare(engine: EngineProcess, ask: Ask, answer: Answer) -> list[Compared]:
    """Each segment of the request's life that put something out, against its replay."""
    found = []
    ends = [*(segment.first_output for segment in answer.segments[1:]), len(answer.tokens)]
    for segment, end in zip(answer.segments, ends, strict=True):
        start = segment.first_output
        if end <= start:
            continue
        part = replace(ask, tokens=[*ask.tokens, *answer.tokens[:start]])
        said = Answer(answer.tokens[start:end], segment.resumed, answer.logprobs[start:end], (segment,))
        history = segment.history if segment.is_exact else rounded_history(engine, said)
        found.append(compared_with_replay(engine, part, said, history))
    return found


def assert_exact(
    engine: EngineProcess, asks: Iterable[Ask], answers: dict[str, Answer], *, batched: bool = False
) -> None:
    """Every answer's every segment equals its replay, bit for bit (but for rounding where they ran `batched`)."""
    for ask in asks:
        for found in compare(engine, ask, answers[ask.name]):
            assert found.segment.is_exact, found
            assert found.difference == 0.0 or (batched and found.is_rounding), found


def assert_right(compared: Iterable[Compared]) -> str:
    """Every segment equals its replay: bit for bit but for rounding. Says how many there were of each kind."""
    compared = list(compared)
    exact = [found for found in compared if found.segment.is_exact]
    batched = [found for found in exact if found.difference != 0.0]
    mixed = [found for found in compared if not found.segment.is_exact]
    # Of hundreds of tokens one may be off by more than BATCHED; a wrong state moves all.
    assert not (late := [found for found in batched if not found.is_rounding]), late
    assert [found for found in mixed if found.difference > ROUNDING] == []
    return (
        f"{len(compared)} segments compared, {sum(found.segment.resumed > 0 for found in compared)} resumed: "
        f"{len(exact) - len(batched)} equal bit for bit, {len(batched)} within {_largest(batched):.3f} (batch), "
        f"{len(mixed)} of mixed history within {_largest(mixed):.3f}"
    )


def _largest(compared: list[Compared]) -> float:
    return max((found.difference for found in compared), default=0.0)


class Tokens:
    """Random tokens, never the same prompt twice in one engine."""

    def __init__(self, seed: object) -> None:
        self._random = random.Random(str(seed))

    def __call__(self, tokens: int) -> list[int]:
        return [self._random.randrange(8, 2000) for _ in range(tokens)]
