"""Growing conversations in which some requests change an earlier part: context edits.

3.85% of the requests change a prefix that was computed before, as published. Half of the edits go back to the end
of an earlier turn and go on otherwise (a tool result is replaced); the other half cut into the last prompt
anywhere after its first turn (old tool results are cleared). That half, and all lengths and gaps, are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from flashstate.replay.endless import EndlessWork
from flashstate.replay.plan import Play, Step
from flashstate.replay.recorded import Scale
from flashstate.traces.session import MAIN_AGENT

EDIT_SHARE: Final = 0.0385
TURNS: Final = 40
FIRST_PROMPT_TOKENS: Final = (12_000, 24_000)
TOOL_RESULT_TOKENS: Final = (100, 3_000)
OUTPUT_TOKENS: Final = (40, 600)
GAP_S: Final = (1.0, 20.0)


@dataclass(frozen=True)
class EditsWorkload(EndlessWork):
    """`sessions` at a time, for ever: each plays conversations of TURNS turns, the first one from its middle."""

    @property
    def most_tokens(self) -> int:
        """Prompt and output of the longest request there can be."""
        first, result, output = (
            _scaled(bounds[1], self.scale)
            for bounds in (FIRST_PROMPT_TOKENS, TOOL_RESULT_TOKENS, OUTPUT_TOKENS)
        )
        return first + TURNS * (result + output)

    @property
    def held_tokens(self) -> tuple[int, ...]:
        """The mean conversation at its half, once a session."""
        half = TURNS * (sum(TOOL_RESULT_TOKENS) + sum(OUTPUT_TOKENS)) // 4 + sum(FIRST_PROMPT_TOKENS) // 2
        return (self.scale.length(half),) * self.sessions

    @property
    def description(self) -> Mapping[str, object]:
        """What it is, for the report."""
        return {
            "kind": "edits",
            "edit_share": EDIT_SHARE,
            "turns": TURNS,
            "token_scale": self.scale.tokens,
            "time_scale": self.scale.time,
            "sessions": self.sessions,
            "spread_s": self.spread_s,
            "seed": self.seed,
        }

    def plays(self, session: int) -> Iterator[Play]:
        """Conversation after conversation; the first starts with the prompt of a turn between 25% and 75%."""
        where = np.random.default_rng([self.seed, session, 1]).uniform(0.25, 0.75)
        number = session
        while True:
            first_turn = int(where * TURNS) if number == session else 0
            steps = _Writer(self.scale, self.seed, number).steps(first_turn)
            yield Play(f"edits#{number}", number, self.seed, (steps,))
            number += self.sessions


class _Writer:
    """Writes one conversation."""

    def __init__(self, scale: Scale, seed: int, number: int) -> None:
        self._scale, self._draw = scale, np.random.default_rng([seed, number, 2])

    def steps(self, first_turn: int) -> tuple[Step, ...]:
        prompt_tokens = self._tokens(FIRST_PROMPT_TOKENS) + sum(
            self._tokens(TOOL_RESULT_TOKENS) + self._tokens(OUTPUT_TOKENS) for _ in range(first_turn)
        )
        steps = [Step(MAIN_AGENT, first_turn, "first", prompt_tokens, self._tokens(OUTPUT_TOKENS))]
        while steps[-1].turn < TURNS - 1:
            # A play's first request cannot be an edit: the others make up for it.
            is_edit = len(steps) > 1 and self._draw.random() < EDIT_SHARE * TURNS / (TURNS - 2)
            steps.append(self._edit(steps) if is_edit else self._next(steps[-1], steps[-1]))
        return tuple(steps)

    def _next(self, last: Step, base: Step, keep_tokens: int | None = None) -> Step:
        keep = base.total_tokens if keep_tokens is None else keep_tokens
        return Step(
            MAIN_AGENT, last.turn + 1, "extends" if keep_tokens is None else "edit",
            keep + self._tokens(TOOL_RESULT_TOKENS), self._tokens(OUTPUT_TOKENS),
            self._scale.gap(float(self._draw.uniform(*GAP_S))),
            after=last.key, base=base.key, keep_tokens=keep,
        )  # fmt: skip

    def _edit(self, steps: list[Step]) -> Step:
        last = steps[-1]
        if self._draw.random() < 0.5:
            back = min(len(steps) - 1, int(self._draw.geometric(0.5)))
            earlier = steps[-1 - back]
            return self._next(last, earlier, earlier.total_tokens - 1)  # the last token was never consumed
        least = min(steps[0].total_tokens, last.prompt_tokens - 1)
        return self._next(last, last, int(self._draw.integers(least, last.prompt_tokens)))

    def _tokens(self, bounds: tuple[int, int]) -> int:
        return _scaled(int(self._draw.integers(*bounds, endpoint=True)), self._scale)


def _scaled(tokens: int, scale: Scale) -> int:
    return max(2, scale.length(tokens))
