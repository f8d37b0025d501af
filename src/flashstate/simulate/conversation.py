"""What an agent asks, turn after turn, as the simulator needs it: lengths, times and the paths of its prompts."""

from __future__ import annotations

from dataclasses import dataclass

from flashstate.simulate.path import SimPath
from flashstate.traces.lineage import Kept, in_time_order, lineage
from flashstate.traces.session import Agent, Session


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. Lengths in tokens, times in seconds as recorded.

    `path` is prompt and output together. `api_s` is 0 where the trace does not say how long the server took.
    """

    prompt_tokens: int
    output_tokens: int
    gap_s: float
    api_s: float
    stop: str
    path: SimPath

    @property
    def total_tokens(self) -> int:
        """Prompt and output."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Conversation:
    """The requests of one agent. `spawn` is the main agent's turn after which a sub-agent starts."""

    name: str
    asks: tuple[Ask, ...]
    spawn: int | None = None


def conversations(session: Session) -> tuple[Conversation, ...]:
    """The main agent's first, then its sub-agents'. Their paths agree wherever the trace's prompts do."""
    origins = lineage(session)
    paths: list[list[SimPath]] = [[] for _ in session.agents]
    # A turn's origin is an earlier one, of its own or another agent: make those first.
    for source, (a, t) in enumerate(in_time_order(session)):
        turn, kept = session.agents[a].turns[t], origins[a][t]
        total = turn.prompt_tokens + turn.output_tokens
        paths[a].append(_path(kept, paths, source, total))
    return tuple(
        Conversation(f"{session.name}/{agent.name}", _asks(agent, paths[a]), agent.spawn_turn)
        for a, agent in enumerate(session.agents)
    )


def _path(kept: Kept | None, paths: list[list[SimPath]], source: int, total: int) -> SimPath:
    if kept is None:
        return SimPath.first(None, 1, source, total)
    base = paths[kept.agent][kept.turn]
    return base.branch(min(kept.tokens, len(base), total), source, total)


def _asks(agent: Agent, paths: list[SimPath]) -> tuple[Ask, ...]:
    return tuple(
        Ask(turn.prompt_tokens, turn.output_tokens, turn.gap_s, turn.api_s or 0.0, turn.stop, path)
        for turn, path in zip(agent.turns, paths, strict=True)
    )
