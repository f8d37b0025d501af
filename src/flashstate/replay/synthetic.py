"""An agent workload of our own, for when no trace is at hand.

Sessions with a prompt of their own that grows turn by turn, as tool results come in; a pause for each tool;
one session that is forked (two agents go on from the end of the same turn) and one context edit (a session
rewound to the end of an earlier turn, with another tool result). Every position worth resuming from is then
exactly the end of a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from flashstate.replay.plan import Play, Step
from flashstate.traces.session import MAIN_AGENT

LEAST_TURNS = 4
"""A session needs room for a fork or a rewind."""


@dataclass(frozen=True)
class Shape:
    """How much there is to do. Pairs are (least, most) of an even draw: tokens, or seconds for `gap_s`."""

    sessions: int = 8
    turns: int = 7
    first_prompt: tuple[int, int] = (3000, 6000)
    tool_result: tuple[int, int] = (200, 900)
    output: tuple[int, int] = (12, 40)
    gap_s: tuple[float, float] = (0.2, 1.5)
    spread_s: float = 3.0

    def __post_init__(self) -> None:
        if self.sessions < 1:
            raise ValueError(f"sessions must be 1 or more, not {self.sessions}")
        if self.turns < LEAST_TURNS:
            raise ValueError(f"turns must be {LEAST_TURNS} or more, not {self.turns}")


@dataclass(frozen=True)
class SyntheticWorkload:
    """A fixed piece of work: every session plays one play, then it is over. The seed decides all of it."""

    shape: Shape
    seed: int

    @property
    def sessions(self) -> int:
        """How many run at a time."""
        return self.shape.sessions

    @property
    def requests(self) -> int:
        """How many requests there are in all."""
        return len(self._steps)

    @property
    def most_tokens(self) -> int:
        """Prompt and output of the longest request."""
        return max(step.total_tokens for step in self._steps)

    @property
    def held_tokens(self) -> tuple[int, ...]:
        """Each agent's tokens at its end, without what a fork shares with the session it left."""
        agents = [agent for play in self._plays for agent in play.agents]
        return tuple(
            agent[-1].total_tokens - (agent[0].keep_tokens if agent[0].kind == "fork" else 0)
            for agent in agents
        )

    @property
    def description(self) -> Mapping[str, object]:
        """What it is, for the report."""
        return {"kind": "synthetic", "seed": self.seed, **asdict(self.shape), "requests": self.requests}

    def start_s(self, session: int) -> float:
        """Sessions begin one after another."""
        return self.shape.spread_s * session / self.shape.sessions

    def plays(self, session: int) -> Iterator[Play]:
        """The one play of a session: the first one's is forked, the second one's is rewound."""
        yield self._plays[session]

    @cached_property
    def _plays(self) -> tuple[Play, ...]:
        edited = min(1, self.shape.sessions - 1)
        return tuple(
            _Writer(self.shape, self.seed, number).play(forks=number == 0, rewinds=number == edited)
            for number in range(self.shape.sessions)
        )

    @property
    def _steps(self) -> list[Step]:
        return [step for play in self._plays for agent in play.agents for step in agent]


class _Writer:
    """Writes the play of one session."""

    def __init__(self, shape: Shape, seed: int, number: int) -> None:
        self._shape, self._seed, self._number = shape, seed, number
        self._draw = np.random.default_rng([seed, number])

    def play(self, *, forks: bool, rewinds: bool) -> Play:
        turns = self._shape.turns
        steps = [self._first()]
        for turn in range(1, turns):
            if rewinds and turn == 2 * turns // 3:
                steps.append(self._rewind(turn, steps[turn - 1], to=steps[turn - max(2, turns // 3)]))
            else:
                steps.append(self._extend(steps[-1]))
        agents = [tuple(steps)]
        if forks:
            # Never the turn that a rewind goes back to: two branches there might begin alike by chance.
            agents.append(self._branch(steps[turns // 2]))
        return Play(f"session-{self._number:02d}", self._number, self._seed, tuple(agents))

    def _first(self) -> Step:
        return Step(MAIN_AGENT, 0, "first", self._between(self._shape.first_prompt), self._output())

    def _extend(self, last: Step) -> Step:
        prompt_tokens = last.total_tokens + self._tool_result()
        return Step(
            last.agent, last.turn + 1, "extends", prompt_tokens, self._output(), self._gap(),
            after=last.key, base=last.key, keep_tokens=last.total_tokens,
        )  # fmt: skip

    def _rewind(self, turn: int, last: Step, to: Step) -> Step:
        return Step(
            MAIN_AGENT, turn, "edit", _end(to) + self._tool_result(), self._output(), self._gap(),
            after=last.key, base=to.key, keep_tokens=_end(to),
        )  # fmt: skip

    def _branch(self, at: Step) -> tuple[Step, ...]:
        """A second agent that goes on from a turn of the first, for as many turns as that one has left."""
        first = Step(
            "fork", 0, "fork", _end(at) + self._tool_result(), self._output(), self._gap(),
            after=at.key, base=at.key, keep_tokens=_end(at),
        )  # fmt: skip
        steps = [first]
        while len(steps) < self._shape.turns - at.turn - 1:
            steps.append(self._extend(steps[-1]))
        return tuple(steps)

    def _between(self, bounds: tuple[int, int]) -> int:
        return int(self._draw.integers(bounds[0], bounds[1], endpoint=True))

    def _tool_result(self) -> int:
        return self._between(self._shape.tool_result)

    def _output(self) -> int:
        return self._between(self._shape.output)

    def _gap(self) -> float:
        return round(float(self._draw.uniform(*self._shape.gap_s)), 3)


def _end(step: Step) -> int:
    """Where a request's state ends: its last sampled token is never consumed, so one short of the total.

    A branch leaves exactly there. (A token later it would also share the token that the next turn consumed.)
    """
    return step.total_tokens - 1
