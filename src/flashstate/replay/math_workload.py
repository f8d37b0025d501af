"""Decode-heavy work: one short question, one long answer, again and again.

Outputs average 2,292 tokens and reach up to 32,769, as published for mathematics problems answered at length.
Their distribution in between and the length of questions are ours: a log-normal, and an even draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Final

import numpy as np

from flashstate.replay.endless import EndlessWork
from flashstate.replay.plan import Play, Step
from flashstate.traces.session import MAIN_AGENT

MEAN_OUTPUT_TOKENS: Final = 2292
MOST_OUTPUT_TOKENS: Final = 32_769
QUESTION_TOKENS: Final = (60, 400)
_SIGMA: Final = 1.2
"""Of the logarithm: half of the answers are below 1,130 tokens, and one in fifty is above 13,000."""


@dataclass(frozen=True)
class MathWorkload(EndlessWork):
    """`sessions` at a time, for ever, each asking its next question when the last one is answered."""

    @property
    def most_tokens(self) -> int:
        """Prompt and output of the longest request there can be."""
        return max(2, self.scale.length(QUESTION_TOKENS[1])) + max(1, self.scale.length(MOST_OUTPUT_TOKENS))

    @property
    def held_tokens(self) -> tuple[int, ...]:
        """The mean question and answer, once a session."""
        return (self.scale.length(sum(QUESTION_TOKENS) // 2 + MEAN_OUTPUT_TOKENS),) * self.sessions

    @property
    def description(self) -> Mapping[str, object]:
        """What it is, for the report."""
        return {
            "kind": "math",
            "mean_output_tokens": MEAN_OUTPUT_TOKENS,
            "most_output_tokens": MOST_OUTPUT_TOKENS,
            "token_scale": self.scale.tokens,
            "sessions": self.sessions,
            "spread_s": self.spread_s,
            "seed": self.seed,
        }

    def plays(self, session: int) -> Iterator[Play]:
        """Each play is one request."""
        draw = np.random.default_rng([self.seed, session])
        number = session
        while True:
            prompt_tokens = self.scale.length(int(draw.integers(*QUESTION_TOKENS, endpoint=True)))
            answer = min(MOST_OUTPUT_TOKENS, int(draw.lognormal(self._mu, _SIGMA)))
            step = Step(MAIN_AGENT, 0, "first", max(2, prompt_tokens), max(1, self.scale.length(answer)))
            yield Play(f"math#{number}", number, self.seed, ((step,),))
            number += self.sessions

    @cached_property
    def _mu(self) -> float:
        return _mu(MEAN_OUTPUT_TOKENS, MOST_OUTPUT_TOKENS, _SIGMA)


def _mu(mean: float, most: float, sigma: float) -> float:
    """The log-normal's mu for which values cut off at `most` have that mean. By bisection: the mean rises with mu."""
    low, high = 0.0, math.log(most)
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _cut_mean(middle, most, sigma) < mean else (low, middle)
    return low


def _cut_mean(mu: float, most: float, sigma: float) -> float:
    """E[min(X, most)] of a log-normal X."""
    normal, z = NormalDist(), (math.log(most) - mu) / sigma
    return math.exp(mu + sigma**2 / 2) * normal.cdf(z - sigma) + most * (1 - normal.cdf(z))
