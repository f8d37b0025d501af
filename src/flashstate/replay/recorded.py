"""Recorded sessions as a workload, scaled to what the machine can serve.

Tokens are divided by one factor, gaps (capped first) by another. Block ids keep every prefix relation: what
two prompts of a session shared in the trace they share in the replay, and a prompt that went on from the
previous prompt and its output holds what the server really generated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from flashstate.replay.plan import Key, Kind, Play, Step
from flashstate.traces.session import BLOCK_TOKENS, MAIN_AGENT, Agent, Session, Turn

GAP_CAP_S: Final = 300.0
"""Longer gaps count as this long, before scaling."""


@dataclass(frozen=True)
class Scale:
    """`tokens` and `time` divide prompts, outputs and gaps: 1 leaves them as recorded."""

    tokens: float = 1.0
    time: float = 1.0

    def __post_init__(self) -> None:
        for name, factor in (("token", self.tokens), ("time", self.time)):
            if not (0 < factor < float("inf")):
                raise ValueError(f"the {name} scale must be a number above 0, not {factor}")

    def length(self, tokens: int) -> int:
        """Tokens after scaling, rounded down. Keeps the order of lengths."""
        return int(tokens / self.tokens)

    def gap(self, seconds: float) -> float:
        """Seconds after cap and scaling."""
        return min(seconds, GAP_CAP_S) / self.time


@dataclass(frozen=True)
class RecordedWorkload:
    """`sessions` at a time, for ever: each starts somewhere between 25% and 75% of a trajectory, so that
    the run is soon in its stride, and plays whole trajectories after that. The seed decides which and
    where."""

    traces: tuple[Session, ...]
    scale: Scale
    sessions: int
    seed: int
    spread_s: float = 20.0

    def __post_init__(self) -> None:
        if not self.traces:
            raise ValueError("a recorded workload needs one trace or more")
        if self.sessions < 1:
            raise ValueError(f"sessions must be 1 or more, not {self.sessions}")

    @property
    def requests(self) -> None:
        """It goes on for ever."""
        return None

    @property
    def most_tokens(self) -> int:
        """Prompt and output of the longest request of any trace."""
        plays = (plan_play(trace, self.scale) for trace in self.traces)
        return max(step.total_tokens for play in plays for agent in play.agents for step in agent)

    @property
    def held_tokens(self) -> tuple[int, ...]:
        """The mean prompt of the traces' main agents, once a session."""
        prompts = [turn.prompt_tokens for trace in self.traces for turn in trace.main.turns]
        return (self.scale.length(sum(prompts) // len(prompts)),) * self.sessions

    @property
    def description(self) -> Mapping[str, object]:
        """What it is, for the report."""
        return {
            "kind": "traces",
            "traces": [trace.name for trace in self.traces],
            "token_scale": self.scale.tokens,
            "time_scale": self.scale.time,
            "gap_cap_s": GAP_CAP_S,
            "sessions": self.sessions,
            "spread_s": self.spread_s,
            "seed": self.seed,
        }

    def start_s(self, session: int) -> float:
        """Sessions begin one after another."""
        return self.spread_s * session / self.sessions

    def plays(self, session: int) -> Iterator[Play]:
        """Trajectory after trajectory, in an order that goes through all traces before one comes again."""
        order = np.random.default_rng([self.seed]).permutation(len(self.traces))
        where = np.random.default_rng([self.seed, session]).uniform(0.25, 0.75)
        number = session
        while True:
            trace = self.traces[order[number % len(order)]]
            first_turn = int(where * len(trace.main.turns)) if number == session else 0
            yield plan_play(trace, self.scale, first_turn, number=number, seed=self.seed)
            number += self.sessions


def plan_play(trace: Session, scale: Scale, first_turn: int = 0, *, number: int = 0, seed: int = 0) -> Play:
    """Plans one session from a turn of its main agent on; sub-agents spawned before that are left out."""
    agents = [_steps(trace.main, scale, MAIN_AGENT, after=None, first_turn=first_turn)]
    for agent in trace.sub_agents:
        if agent.spawn_turn is None and first_turn == 0:
            agents.append(_steps(agent, scale, agent.name, after=None))
        elif agent.spawn_turn is not None and agent.spawn_turn >= first_turn:
            after = (MAIN_AGENT, agent.spawn_turn)
            agents.append(_steps(agent, scale, agent.name, after=after))
    return Play(f"{trace.name}#{number}", number, seed, tuple(agents), BLOCK_TOKENS / scale.tokens)


def _steps(agent: Agent, scale: Scale, name: str, after: Key | None, first_turn: int = 0) -> tuple[Step, ...]:
    steps: dict[int, Step] = {}
    last_turn_with: dict[int, int] = {}  # block id -> the latest turn whose prompt has it
    for number, (turn, blocks) in enumerate(zip(agent.turns, agent.prompts(), strict=True)):
        if number < first_turn:
            continue
        gap_s = 0.0 if number == first_turn > 0 else scale.gap(turn.gap_s)
        shared, base = _shared(blocks, last_turn_with)
        output_tokens = max(1, scale.length(turn.output_tokens))
        kind: Kind = "first" if number == first_turn else "edit"
        keep = 0
        if base is not None:
            keep = _keep(agent.turns[base], turn, shared, steps[base], scale)
            if base == number - 1 and keep == steps[base].total_tokens:
                kind = "extends"
        steps[number] = Step(
            name, number, kind, max(keep + 1, scale.length(turn.prompt_tokens), 2), output_tokens, gap_s,
            after=after if number == first_turn else (name, number - 1),
            base=None if base is None else (name, base), keep_tokens=keep, blocks=tuple(blocks),
        )  # fmt: skip
        last_turn_with.update(dict.fromkeys(blocks, number))
    return tuple(steps.values())


def _shared(blocks: Sequence[int], last_turn_with: Mapping[int, int]) -> tuple[int, int | None]:
    """How many leading blocks an earlier turn has too, and which turn (an id names its whole prefix)."""
    for index in reversed(range(len(blocks))):
        if blocks[index] in last_turn_with:
            return index + 1, last_turn_with[blocks[index]]
    return 0, None


def _keep(before: Turn, turn: Turn, shared: int, base: Step, scale: Scale) -> int:
    """How many tokens of the base step's prompt and output the new prompt starts with.

    All, where the whole earlier prompt is shared and there is room for its output. Where there is not, part
    of the output was dropped (as thinking is), at its start: the prompt alone is kept.
    """
    if shared == before.block_count:
        if turn.prompt_tokens >= before.prompt_tokens + before.output_tokens:
            return base.total_tokens
        if turn.prompt_tokens >= before.prompt_tokens:
            return base.prompt_tokens
    return min(base.prompt_tokens, scale.length(shared * BLOCK_TOKENS))
