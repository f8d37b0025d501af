"""A recorded agent session in memory. Traces hold no text: token counts, times and block ids only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BLOCK_TOKENS: Final = 64
"""Tokens that one block id stands for."""

MAIN_AGENT: Final = "main"
"""The name of the agent that a session starts with."""


class TraceError(Exception):
    """A trace that cannot be read. One line: the file, the field, the reason."""

    def __init__(self, file: str, field: str, reason: str) -> None:
        self.file, self.field, self.reason = file, field, reason
        super().__init__(f"{file}: {field}: {reason}" if field else f"{file}: {reason}")


@dataclass(frozen=True)
class Turn:
    """One request of an agent.

    `time_s` is its start on the session's clock. `gap_s` is how long the agent waited before it: since the
    end of its previous turn, or for a sub-agent's first turn since the end of the turn that spawned it;
    0 for the first turn of a session.

    `blocks` has an id for each full 64-token block of the prompt. An id names a whole prefix: two turns of a
    session that have an id in common have the same prompt up to the end of that block. Ids mean nothing
    across sessions.
    """

    time_s: float
    gap_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class Agent:
    """The requests of one conversation. `spawn_turn` is the main agent's turn that started it.

    None for the main agent, and for a sub-agent whose start was not recorded.
    """

    name: str
    spawn_turn: int | None
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Session:
    """One recorded session: the main agent and its sub-agents, in the order in which they appear."""

    name: str
    main: Agent
    sub_agents: tuple[Agent, ...]

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The main agent first, then its sub-agents."""
        return (self.main, *self.sub_agents)
