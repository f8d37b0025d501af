"""When each request comes and ends if requests last as recorded: the same whatever the cache does."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flashstate.simulate.conversation import Ask, Conversation
from flashstate.simulate.path import SimPath
from flashstate.simulate.rules import Play, Rules, plays


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One request of a run. `conversation` is the same for all requests of one agent in one play."""

    number: int
    session: int
    conversation: int
    turn: int
    start_s: float
    end_s: float
    ask: Ask
    path: SimPath


def schedule(
    trajectories: Sequence[tuple[Conversation, ...]], rules: Rules, block_tokens: int
) -> list[Request]:
    """Every request that starts before the run ends, by start."""
    requests: list[tuple[float, float, int, int, int, int, Ask, int]] = []
    conversations = 0
    for session in range(rules.sessions):
        now = rules.start_s(session)
        for play in plays(trajectories, rules, session):
            ends = _times(play, rules, now)
            for agent, turn, start, end, ask in ends:
                if start < rules.duration_s:
                    requests.append(
                        (start, end, session, conversations + agent, turn, play.number, ask, len(requests))
                    )
            conversations += len(play.agents)
            if len([1 for agent, *_ in ends if agent == 0]) < len(play.agents[0].asks) - play.first:
                break  # the run ends before the trajectory does
            now = max(end for agent, _, _, end, _ in ends if agent == 0)
    requests.sort(key=lambda row: (row[0], row[7]))
    return [
        Request(n, session, conversation, turn, start, end, ask, ask.path.within(play, block_tokens))
        for n, (start, end, session, conversation, turn, play, ask, _) in enumerate(requests)
    ]


def _times(play: Play, rules: Rules, now: float) -> list[tuple[int, int, float, float, Ask]]:
    """(agent, turn, start, end, what is asked) of a play that begins at `now`, as far as the run goes."""
    rows = list(_agent_times(play.agents[0], 0, play.first, rules, now, first=True))
    ends = {turn: end for _, turn, _, end, _ in rows}
    for number, agent in enumerate(play.agents[1:], start=1):
        if agent.spawn is None:
            begin = now if play.first == 0 else None
        else:
            begin = ends.get(agent.spawn)
        if begin is not None:
            rows += _agent_times(agent, number, 0, rules, begin, first=False)
    return rows


def _agent_times(
    agent: Conversation, number: int, first_turn: int, rules: Rules, now: float, *, first: bool
) -> Iterator[tuple[int, int, float, float, Ask]]:
    for turn in range(first_turn, len(agent.asks)):
        ask = agent.asks[turn]
        start = now if first and turn == first_turn else now + rules.gap_s(ask)
        if start >= rules.duration_s:
            return
        now = start + ask.api_s
        yield number, turn, start, now, ask


def events(requests: Sequence[Request]) -> Iterator[tuple[float, bool, Request]]:
    """(time, whether it is an end, request), by time; what ends goes before what starts then."""
    pending: list[tuple[float, bool, int, Request]] = [(r.start_s, True, r.number, r) for r in requests]
    heapq.heapify(pending)
    while pending:
        time, starts, number, request = heapq.heappop(pending)
        yield time, not starts, request
        if starts:
            heapq.heappush(pending, (request.end_s, False, number, request))
