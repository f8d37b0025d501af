"""Recorded sessions as a workload, scaled to what the machine can serve.

Tokens are divided by one factor, gaps (capped first) by another. Block ids keep every prefix relation: what
two prompts of a session shared in the trace they share in the replay, and a prompt that went on from the
previous prompt and its output holds what the server really generated.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flashstate.replay.gaps import GAP_CAP_S, Gaps
from flashstate.replay.plan import Key, Kind, Play, Step
from flashstate.traces.session import BLOCK_TOKENS, MAIN_AGENT, Agent, Session, Turn

_AS_RECORDED = Gaps()


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
        """Seconds after scaling."""
        return seconds / self.time


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
    gaps: Gaps = _AS_RECORDED

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
            yield plan_play(trace, self.scale, first_turn, number=number, seed=self.seed, gaps=self.gaps)
            number += self.sessions


def plan_play(
    trace: Session,
    scale: Scale,
    first_turn: int = 0,
    *,
    number: int = 0,
    seed: int = 0,
    gaps: Gaps = _AS_RECORDED,
) -> Play:
    """Plans one session from a turn of its main agent on; sub-agents spawned before that are left out."""
    agents = [_Planner(trace.main, scale, gaps).steps(MAIN_AGENT, first_turn=first_turn)]
    for agent in trace.sub_agents:
        if agent.spawn_turn is None and first_turn == 0:
            agents.append(_Planner(agent, scale, gaps).steps(agent.name))
        elif agent.spawn_turn is not None and agent.spawn_turn >= first_turn:
            spawner = trace.main.turns[agent.spawn_turn]
            after = (MAIN_AGENT, agent.spawn_turn)
            agents.append(_Planner(agent, scale, gaps, spawner).steps(agent.name, after))
    return Play(f"{trace.name}#{number}", number, seed, tuple(agents), BLOCK_TOKENS / scale.tokens)


class _Planner:
    """Plans one agent's steps. Takes time and room by the blocks that come and go, not by all blocks of a prompt."""

    def __init__(self, agent: Agent, scale: Scale, gaps: Gaps, spawner: Turn | None = None) -> None:
        self._agent, self._scale, self._gaps, self._spawner = agent, scale, gaps, spawner
        self._steps: dict[int, Step] = {}
        self._left: dict[
            int, int
        ] = {}  # id of a block that the last prompt lacks -> the latest turn that had it

    def steps(self, name: str, after: Key | None = None, *, first_turn: int = 0) -> tuple[Step, ...]:
        """The steps from a turn on. `after`: what the first of them waits for."""
        blocks: array[int] = array("q")  # of the prompt at hand
        for number, turn in enumerate(self._agent.turns):
            if number > first_turn:
                self._left.update(dict.fromkeys(blocks[turn.shared_blocks :], number - 1))
            blocks[turn.shared_blocks :] = turn.new_blocks
            if number >= first_turn:
                waits_for = after if number == first_turn else (name, number - 1)
                self._steps[number] = self._step(
                    name, number, blocks, waits_for, is_first=number == first_turn
                )
        return tuple(self._steps.values())

    def _step(self, name: str, number: int, blocks: array[int], after: Key | None, *, is_first: bool) -> Step:
        turn, scale = self._agent.turns[number], self._scale
        shared, base = (0, None) if is_first else self._shared(number, blocks)
        kind: Kind = "first" if is_first else "edit"
        keep = labelled_from = 0
        if base is not None:
            before = self._steps[base]
            keep = _keep(self._agent.turns[base], turn, shared, before, scale)
            # An answer may turn out shorter than planned: what is then missing of it needs labels too.
            labelled_from = min(keep, before.prompt_tokens)
            if base == number - 1 and keep == before.total_tokens:
                kind = "extends"
        first_block = min(len(blocks), int((labelled_from + 1) * scale.tokens / BLOCK_TOKENS))
        while first_block and int(first_block * (BLOCK_TOKENS / scale.tokens)) > labelled_from:
            first_block -= 1
        return Step(
            name, number, kind, max(keep + 1, scale.length(turn.prompt_tokens), 2),
            max(1, scale.length(turn.output_tokens)), self._gap_s(number, is_first=is_first), after=after,
            base=None if base is None else (name, base), keep_tokens=keep,
            blocks=blocks[first_block:], first_block=first_block,
        )  # fmt: skip

    def _gap_s(self, number: int, *, is_first: bool) -> float:
        """0 where a play starts in the middle."""
        if is_first and number > 0:
            return 0.0
        before = self._agent.turns[number - 1] if number else self._spawner
        return self._scale.gap(self._gaps.wait_s(self._agent.turns[number], before))

    def _shared(self, number: int, blocks: Sequence[int]) -> tuple[int, int | None]:
        """How many leading blocks an earlier turn has too, and the latest such turn (an id names its whole prefix)."""
        shared = self._agent.turns[number].shared_blocks
        for index in range(len(blocks) - 1, shared - 1, -1):
            if blocks[index] in self._left:
                return index + 1, self._left[blocks[index]]
        return shared, number - 1 if shared else None


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
