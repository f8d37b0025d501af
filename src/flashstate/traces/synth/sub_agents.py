"""Fits who is started by tool calls of the main agent, when, and what they share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from flashstate.traces.session import BLOCK_TOKENS, Agent, Session
from flashstate.traces.synth.behaviour import fit_behaviour
from flashstate.traces.synth.circumstances import SUB_AGENTS
from flashstate.traces.synth.observe import Seen
from flashstate.traces.synth.params import Behaviour, SubAgents
from flashstate.traces.synth.tables import ALONE, fit_shares, fit_tables, short

_LEAST_TURNS: Final = 50
_SLACK_S: Final = 1.0
"""Recorded times are whole seconds."""

Launch = tuple[Session, int, list[Agent]]
"""The main agent's turn that started them, and them."""


def fit_sub_agents(sessions: Sequence[Session], seen: Sequence[Seen], main: Behaviour) -> SubAgents | None:
    """None where no session has any whose start was recorded. `seen` are all turns of sub-agents.

    They behave as the main agent where they did too little to tell.
    """
    launches = [launch for session in sessions for launch in _launches(session)]
    if not launches:
        return None
    counts = [len(list(_launches(session))) for session in sessions]
    firsts = [s for s in seen if s.before is None]
    awaited = [launch for launch in launches if _awaited(launch)]
    return SubAgents(
        sessions=fit_shares(
            SUB_AGENTS,
            (((len(s.main.turns),), count > 0) for s, count in zip(sessions, counts, strict=True)),
            2,
        ),
        launches=fit_tables(ALONE, (((), count) for count in counts if count)),
        at_once=fit_tables(ALONE, (((), len(subs)) for _, _, subs in launches)),
        place=fit_tables(ALONE, (((), turn / len(session.main.turns)) for session, turn, _ in launches)),
        awaited=short(len(awaited) / len(launches)),
        start_s=fit_tables(ALONE, (((), sub.turns[0].gap_s) for _, _, subs in launches for sub in subs)),
        resume_s=fit_tables(ALONE, (((), max(0.0, _resume_s(launch))) for launch in awaited)),
        turns=fit_tables(ALONE, (((), s.turns) for s in firsts)),
        first_prompt=fit_tables(ALONE, (((), s.turn.prompt_tokens) for s in firsts)),
        shared=fit_tables(ALONE, (((), part) for session in sessions for part in _shared(session))),
        behaviour=fit_behaviour(seen) if sum(s.grows for s in seen) >= _LEAST_TURNS else main,
    )


def _launches(session: Session) -> Iterator[Launch]:
    started: dict[int, list[Agent]] = defaultdict(list)
    for sub in session.sub_agents:
        if sub.spawn_turn is not None:
            started[sub.spawn_turn].append(sub)
    for turn, subs in started.items():
        yield session, turn, subs


def _resume_s(launch: Launch) -> float:
    """From the end of the last one to the main agent's next turn; negative where there is none, or it did not wait."""
    session, turn, subs = launch
    if turn + 1 == len(session.main.turns):
        return -_SLACK_S
    return session.main.turns[turn + 1].time_s - max(sub.turns[-1].end_s for sub in subs)


def _awaited(launch: Launch) -> bool:
    return _resume_s(launch) > -_SLACK_S


def _shared(session: Session) -> Iterator[float]:
    """For each sub-agent but the first: the part of its first prompt that an earlier one had."""
    known: set[int] = set()
    for sub in sorted(session.sub_agents, key=lambda agent: agent.turns[0].time_s):
        first = sub.turns[0]
        if known:
            yield sum(block in known for block in first.new_blocks) * BLOCK_TOKENS / first.prompt_tokens
        known.update(first.new_blocks)
