"""A recorded agent session in memory. Traces hold no text: token counts, times and block ids only."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
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
        message = f"{file}: {field}: {reason}" if field else f"{file}: {reason}"
        # Names from a broken file may hold anything: escape what would break the line.
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in message))


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of an agent.

    `time_s` is its start on the session's clock. `gap_s` is how long the agent waited before it: since the
    end of its previous turn, or for a sub-agent's first turn since the end of the turn that spawned it;
    0 for the first turn of a session.

    The prompt's full 64-token blocks have an id each: the first `shared_blocks` are those of the agent's
    previous turn, then come `new_blocks`. An id names a whole prefix: two turns of a session that have an id in
    common have the same prompt up to the end of that block. Ids mean nothing across sessions.
    """

    time_s: float
    gap_s: float
    prompt_tokens: int
    output_tokens: int
    shared_blocks: int
    new_blocks: array[int]
    """Signed 64-bit."""
    api_s: float | None = None
    """How long the server took; None where the end was not recorded."""
    think_s: float | None = None
    """The client's own figure for the wait before this turn, as recorded: see the reader's cautions."""
    ttft_s: float | None = None
    stop: str = ""
    """tool_use, end_turn, or empty where the end was not recorded."""
    model: str = ""
    streaming: bool = False
    input_types: tuple[str, ...] = ()
    output_types: tuple[str, ...] = ()

    @property
    def block_count(self) -> int:
        """Full blocks of the prompt."""
        return self.shared_blocks + len(self.new_blocks)

    @property
    def end_s(self) -> float:
        """When the server was done, on the session's clock; the start, where the end was not recorded."""
        return self.time_s + (self.api_s or 0.0)


@dataclass(frozen=True, slots=True)
class About:
    """What a recording says of an agent beside its requests. Empty or None where it says nothing."""

    kind: str = ""
    """A sub-agent's type, such as Explore."""
    status: str = ""
    """completed, or async_launched: the parent did not wait for it."""
    duration_ms: float | None = None
    total_tokens: int | None = None
    tool_uses: int | None = None
    models: tuple[str, ...] = ()
    tool_tokens: int = 0
    """Tokens of the tool definitions, at the start of every prompt."""
    system_tokens: int = 0
    """Tokens of the system prompt, after the tools."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The requests of one conversation. `spawn_turn` is the main agent's turn that started it.

    None for the main agent, and for a sub-agent whose start was not recorded.
    """

    name: str
    spawn_turn: int | None
    turns: tuple[Turn, ...]
    about: About = About()

    def prompts(self) -> Iterator[array[int]]:
        """The block ids of each turn's whole prompt, turn after turn. Each is a copy."""
        blocks: array[int] = array("q")
        for turn in self.turns:
            blocks = blocks[: turn.shared_blocks] + turn.new_blocks
            yield blocks


@dataclass(frozen=True, slots=True)
class Session:
    """One recorded session: the main agent and its sub-agents, in the order in which they appear.

    `primary` is False for a recording linked to another one that stands for both (copies, forks, twins).
    """

    name: str
    main: Agent
    sub_agents: tuple[Agent, ...]
    primary: bool = True
    group: str = ""
    """The name that linked recordings share; empty where links are not known."""
    copy_of: str = ""
    """An earlier session with the same requests, if there is one."""

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The main agent first, then its sub-agents."""
        return (self.main, *self.sub_agents)
