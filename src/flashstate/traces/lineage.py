"""Where each turn's prompt comes from: the earlier turn it shares most with, and how many tokens of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from flashstate.traces.session import BLOCK_TOKENS, Session, Turn


@dataclass(frozen=True, slots=True)
class Kept:
    """A prompt starts with the first `tokens` tokens of what (agent, turn) had as prompt and output.

    `blocks` is what the ids alone prove: whole 64-token blocks of the other's prompt.
    """

    agent: int
    turn: int
    blocks: int
    tokens: int

    @property
    def is_exact(self) -> bool:
        """Whether `tokens` is a position known to the token, not to the block."""
        return self.tokens != self.blocks * BLOCK_TOKENS


Lineage = tuple[tuple[Kept | None, ...], ...]
"""For each agent of a session (main first), for each of its turns: None where nothing is shared."""


def lineage(session: Session) -> Lineage:
    """Works out every turn's origin. Ids are compared across the agents of a session, in order of time.

    A prompt that keeps all blocks of the agent's previous prompt and is at least as long as that prompt and its
    output is taken to contain the output exactly. Otherwise only the shared whole blocks are known.
    """
    kept: list[list[Kept | None]] = [[None] * len(agent.turns) for agent in session.agents]
    last_with: dict[int, tuple[int, int]] = {}  # block id -> the latest turn that brought it
    prompts = [agent.prompts() for agent in session.agents]
    for a, t in in_time_order(session):
        turn, blocks = session.agents[a].turns[t], next(prompts[a])
        before = session.agents[a].turns[t - 1] if t else None
        shared = turn.shared_blocks
        while shared < len(blocks) and blocks[shared] in last_with:
            shared += 1
        if before is not None and shared <= turn.shared_blocks and extends(before, turn):
            kept[a][t] = Kept(a, t - 1, shared, before.prompt_tokens + before.output_tokens)
        elif before is not None and shared == turn.shared_blocks and shared > 0:
            kept[a][t] = Kept(a, t - 1, shared, shared * BLOCK_TOKENS)
        elif shared > 0:
            kept[a][t] = Kept(*last_with[blocks[shared - 1]], shared, shared * BLOCK_TOKENS)
        for block in turn.new_blocks:
            last_with[block] = (a, t)
    return tuple(map(tuple, kept))


def in_time_order(session: Session) -> list[tuple[int, int]]:
    """(agent, turn) of every turn by its start; where an agent's clock went back, no earlier than the turn before."""
    starts = (
        (at, a, t)
        for a, agent in enumerate(session.agents)
        for t, at in enumerate(accumulate((turn.time_s for turn in agent.turns), max))
    )
    return [(a, t) for _, a, t in sorted(starts)]


def extends(before: Turn, turn: Turn) -> bool:
    """Whether `turn` goes on from the whole of `before`, prompt and output."""
    return (
        turn.shared_blocks == before.block_count
        and turn.prompt_tokens >= before.prompt_tokens + before.output_tokens
    )
