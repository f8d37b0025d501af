"""Clients that send a turn when the last one's answer and its gap are over: load that feeds back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf

from flashstate.simulate.conversation import Conversation
from flashstate.simulate.rules import Play, Rules, plays
from flashstate.simulate.schedule import Request


@dataclass(frozen=True, slots=True)
class Turn:
    """What a client sends next: a turn of one agent of a play. `conversation`: that agent's in that play."""

    session: int
    play: Play
    agent: int
    conversation: int
    number: int


class Clients:
    """Sessions played as in `schedule`, each turn after the one before has really ended."""

    def __init__(
        self, trajectories: Sequence[tuple[Conversation, ...]], rules: Rules, block_tokens: int
    ) -> None:
        self._rules = rules
        self._block_tokens = block_tokens
        self._plays: list[Iterator[Play]] = [plays(trajectories, rules, n) for n in range(rules.sessions)]
        self._conversations = 0
        self._requests = count()
        self.finished_s: list[float] = []
        """When each trajectory ended that did: its main agent's last turn."""

    def first(self) -> list[tuple[float, Turn]]:
        """When each session sends its first turn, in seconds."""
        begins = [(session, self._rules.start_s(session)) for session in range(self._rules.sessions)]
        return [begun for session, now in begins for begun in self._begin(session, now)]

    def send(self, turn: Turn, now: float) -> Request:
        """The request that `turn` is. It ends when it ends: `end_s` is infinite."""
        ask = turn.play.agents[turn.agent].asks[turn.number]
        path = ask.path.within(turn.play.number, self._block_tokens)
        return Request(
            next(self._requests), turn.session, turn.conversation, turn.number, now, inf, ask, path
        )

    def answered(self, turn: Turn, now: float) -> list[tuple[float, Turn]]:
        """`turn` ended: what is sent for that, and when."""
        play = turn.play
        agent = play.agents[turn.agent]
        if turn.agent == 0:
            spawned = [n for n, sub in enumerate(play.agents) if n > 0 and sub.spawn == turn.number]
            main = turn.conversation
            due = [self._after_gap(turn.session, play, n, main + n, 0, now) for n in spawned]
        else:
            due = []
        if turn.number + 1 < len(agent.asks):
            due.insert(
                0, self._after_gap(turn.session, play, turn.agent, turn.conversation, turn.number + 1, now)
            )
        elif turn.agent == 0:
            self.finished_s.append(now)
            due += self._begin(turn.session, now)
        return due

    def _begin(self, session: int, now: float) -> list[tuple[float, Turn]]:
        play = next(self._plays[session])
        main = self._conversations
        self._conversations += len(play.agents)
        due = [(now, Turn(session, play, 0, main, play.first))]
        if play.first == 0:
            for n, sub in enumerate(play.agents):
                if n > 0 and sub.spawn is None:
                    due.append(self._after_gap(session, play, n, main + n, 0, now))
        return due

    def _after_gap(
        self, session: int, play: Play, agent: int, conversation: int, number: int, now: float
    ) -> tuple[float, Turn]:
        gap = self._rules.gap_s(play.agents[agent].asks[number])
        return now + gap, Turn(session, play, agent, conversation, number)
