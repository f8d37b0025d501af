"""Makes recorded sessions smaller and quicker, so that a small model and a short run can take them.

As in the replay, one factor divides lengths and another one times. Shared prefixes stay shared, in whole blocks: a
block of the scaled prompt ends somewhere in a recorded block, and two prompts share it if they share that one.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from flashstate.traces.blocks import common_blocks
from flashstate.traces.session import BLOCK_TOKENS, About, Agent, Session, Turn


def scaled(session: Session, tokens: float, time: float) -> Session:
    """Lengths divided by `tokens` and rounded down, a prompt keeping one token; seconds divided by `time`.

    Block ids are made anew. Raises ValueError for a factor that is not above 0.
    """
    for name, factor in (("token", tokens), ("time", time)):
        if not 0 < factor < math.inf:
            raise ValueError(f"the {name} scale must be a number above 0, not {factor}")
    blocks = _Blocks(tokens)
    main, *subs = (_agent(agent, blocks, tokens, time) for agent in session.agents)
    return replace(session, main=main, sub_agents=tuple(subs))


class _Blocks:
    """Names the blocks of scaled prompts; ids mean the same for all agents of a session."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._names: dict[tuple[int, int], int] = {}
        self._fresh: Iterator[int] = count()

    def of(self, recorded: array[int], prompt_tokens: int) -> array[int]:
        """The ids of a scaled prompt of so many tokens."""
        return array("q", (self._name(recorded, number) for number in range(prompt_tokens // BLOCK_TOKENS)))

    def _name(self, recorded: array[int], number: int) -> int:
        last = math.ceil((number + 1) * self._scale) - 1
        if last >= len(recorded):  # it ends in the rest of the prompt, which has no id
            return next(self._fresh)
        key = recorded[last], number  # below 1, a recorded block holds several
        if key not in self._names:
            self._names[key] = next(self._fresh)
        return self._names[key]


def _agent(agent: Agent, blocks: _Blocks, tokens: float, time: float) -> Agent:
    turns: list[Turn] = []
    before: array[int] = array("q")
    for turn, recorded in zip(agent.turns, agent.prompts(), strict=True):
        prompt_tokens = max(1, int(turn.prompt_tokens / tokens))
        now = blocks.of(recorded, prompt_tokens)
        shared = common_blocks(before, now)
        turns.append(
            replace(
                turn,
                time_s=turn.time_s / time,
                gap_s=turn.gap_s / time,
                prompt_tokens=prompt_tokens,
                output_tokens=int(turn.output_tokens / tokens),
                shared_blocks=shared,
                new_blocks=now[shared:],
                api_s=_divided(turn.api_s, time),
                think_s=_divided(turn.think_s, time),
                ttft_s=_divided(turn.ttft_s, time),
            )
        )
        before = now
    return replace(agent, turns=tuple(turns), about=_about(agent.about, tokens, time))


def _about(about: About, tokens: float, time: float) -> About:
    total = about.total_tokens
    return replace(
        about,
        duration_ms=_divided(about.duration_ms, time),
        total_tokens=None if total is None else int(total / tokens),
        tool_tokens=int(about.tool_tokens / tokens),
        system_tokens=int(about.system_tokens / tokens),
    )


def _divided(value: float | None, by: float) -> float | None:
    return None if value is None else value / by
