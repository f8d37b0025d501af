"""The trajectories that a simulation plays, out of recorded sessions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from flashstate.simulate.conversation import Conversation, conversations
from flashstate.simulate.rules import Rules
from flashstate.traces.read import read_sessions
from flashstate.traces.session import Session, TraceError
from flashstate.traces.skip import OnBad, or_raise

Agents = Literal["main", "all"]
AGENTS: Final[tuple[Agents, ...]] = ("main", "all")

_LEAST_REQUESTS: Final = 2
_LEAST_S: Final = 0.1
"""Seconds a request takes on average, at least: sessions without times would be played without end."""
_MOST_TOKENS: Final = 2**24 - 1
"""Of a prompt and its output: a path can hold no more."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Trajectories to play, and what they were read from. `left_out`: how many sessions, by reason."""

    names: tuple[str, ...]
    agents: Agents
    trajectories: tuple[tuple[Conversation, ...], ...]
    left_out: dict[str, int]

    @property
    def requests(self) -> int:
        """Requests of all trajectories."""
        return sum(len(agent.asks) for agents in self.trajectories for agent in agents)

    def as_json(self) -> dict[str, Any]:
        """Plain values that name the workload; `digest` stands for its content."""
        return {
            "names": list(self.names),
            "agents": self.agents,
            "sessions": len(self.trajectories),
            "requests": self.requests,
            "left_out": self.left_out,
            "digest": self.digest(),
        }

    def lasting(self, rules: Rules) -> Workload:
        """Without the trajectories that would take next to no time as recorded. Raises TraceError if none is left."""
        kept = tuple(agents for agents in self.trajectories if _request_s(agents[0], rules) >= _LEAST_S)
        if not kept:
            reason = (
                f"requests that last as recorded need {_LEAST_S:g} s each on average, server time and gap: "
                "use --clock engine"
            )
            raise TraceError(", ".join(self.names), "", reason)
        gone = len(self.trajectories) - len(kept)
        return replace(
            self, trajectories=kept, left_out=self.left_out | ({"without times": gone} if gone else {})
        )

    def digest(self) -> str:
        """Changes with any length or time of any request. Names the prompts' relations by their lengths only."""
        digest = hashlib.sha256()
        for agents in self.trajectories:
            for agent in agents:
                rows = [(a.prompt_tokens, a.output_tokens, a.gap_s, a.api_s) for a in agent.asks]
                digest.update(repr((agent.name, agent.spawn, rows)).encode())
        return digest.hexdigest()[:16]


def read_workload(
    paths: Sequence[Path], agents: Agents, *, all_sessions: bool, on_bad: OnBad | None = None
) -> Workload:
    """Reads traces in any format. Raises TraceError: a broken record (unless `on_bad`), or nothing to play.

    Left out unless `all_sessions`: recordings that another one stands for, and main agents with one request only.
    """
    trajectories, left_out = [], Counter[str]()
    for path in paths:
        for session in read_sessions(path, on_bad):
            reason = None if all_sessions else _unwanted(session)
            if reason is not None:
                left_out[reason] += 1
                continue
            if (long := _too_long(path, session)) is not None:
                or_raise(on_bad, long)
                continue
            found = conversations(session)
            trajectories.append(found if agents == "all" else found[:1])
    names = tuple(path.resolve().name for path in paths)
    if not trajectories:
        gone = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
        hint = f" ({gone} left out: --all-sessions keeps them)" if gone else ""
        raise TraceError(", ".join(names), "", f"no session to play{hint}")
    return Workload(names, agents, tuple(trajectories), dict(left_out))


def _unwanted(session: Session) -> str | None:
    if not session.primary:
        return "linked to another"
    return "of one request" if len(session.main.turns) < _LEAST_REQUESTS else None


def _too_long(path: Path, session: Session) -> TraceError | None:
    most = max(turn.prompt_tokens + turn.output_tokens for agent in session.agents for turn in agent.turns)
    if most <= _MOST_TOKENS:
        return None
    reason = f"has a prompt and output of {most} tokens: a simulation takes {_MOST_TOKENS} at most"
    return TraceError(str(path), session.name, reason)


def _request_s(main: Conversation, rules: Rules) -> float:
    """Seconds from one request to the next, on average, if played from the start."""
    total = sum(ask.api_s for ask in main.asks) + sum(rules.gap_s(ask) for ask in main.asks[1:])
    return total / len(main.asks)
