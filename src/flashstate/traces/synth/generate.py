"""Makes synthetic sessions of parameters: any number, one at a time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from flashstate.traces.session import BLOCK_TOKENS, MAIN_AGENT, About, Agent, Session, Turn
from flashstate.traces.synth.copula import Copula
from flashstate.traces.synth.edits import Room
from flashstate.traces.synth.names import WINDOW_TOKENS
from flashstate.traces.synth.outline import Outline, Outlines, inner
from flashstate.traces.synth.params import Params, SubAgents
from flashstate.traces.synth.prompts import Ids
from flashstate.traces.synth.walk import Course, Walk, hundredths

MOST_SESSIONS: Final = 1_000_000
"""Of one workload: names have six digits, and readers sort by them. The sessions stream; only their names are kept."""

_TRIES: Final = 30


@dataclass(frozen=True, slots=True)
class _Launch:
    """How many sub-agents a turn starts, and whether the main agent waits for them."""

    count: int
    awaited: bool


def generate(params: Params, sessions: int, seed: int) -> Iterator[Session]:
    """Draws sessions. Each depends on the seed and its own place only, not on how many there are."""
    copula, outlines = Copula(params), Outlines(params.starts, seed)
    for number in range(sessions):
        name = f"synth_{number:06d}"
        draw = Random(f"{seed}/{number}")  # a string seeds the same on every machine
        outline = outlines.at(number)
        session = _SessionWriter(params, copula, outline, draw).write(name)
        for _ in range(_TRIES):
            if not outline.start.is_long or _longest(session) > WINDOW_TOKENS:
                break
            session = _SessionWriter(params, copula, outline, draw).write(name)  # long is what became long
        yield session


class _SessionWriter:
    def __init__(self, params: Params, copula: Copula, outline: Outline, draw: Random) -> None:
        self._params, self._copula, self._outline, self._draw = params, copula, outline, draw
        self._ids = Ids()
        self._subs: list[Agent] = []
        self._common: array[int] = array("q")
        """Blocks that sub-agents of the session start with."""

    def write(self, name: str) -> Session:
        """Draws all of it."""
        course, launches = self._main()
        walk = Walk(self._params.main, self._params.returns, self._copula, course, self._draw, self._ids)
        turn: Turn | None = walk.first(0.0, 0.0, array("q"))
        while turn is not None:
            number, not_before_s = len(walk.turns) - 1, 0.0
            if self._params.sub_agents and number in launches:
                not_before_s = self._launch(self._params.sub_agents, launches[number], number, turn)
            turn = walk.next(not_before_s)
        about = About(system_tokens=course.room.prefix_blocks * BLOCK_TOKENS)
        return Session(name, Agent(MAIN_AGENT, None, walk.turns, about), tuple(self._subs))

    def _main(self) -> tuple[Course, Mapping[int, _Launch]]:
        params, outline = self._params, self._outline
        start, turns = outline.start, outline.turns
        launches = self._launches(turns, params.sub_agents) if params.sub_agents else {}
        room = Room(
            turns, outline.first_prompt, start.is_long, params.windows[start.is_long], self._prefix_blocks()
        )
        levels = self._copula.session(self._draw, outline.level)
        return Course(start.streaming, room, levels, launches), launches

    def _prefix_blocks(self) -> int:
        prefix = self._params.returns.prefix
        return round(prefix.at(self._draw.random())) // BLOCK_TOKENS if prefix.cells else 0

    def _launches(self, turns: int, subs: SubAgents) -> Mapping[int, _Launch]:
        """By turn; none at the last one, where nobody would wait for them."""
        draw = self._draw
        if turns < 2 or draw.random() >= subs.sessions.of(turns)[1]:
            return {}
        return {
            min(int(subs.place.at(draw.random()) * turns), turns - 2): _Launch(
                max(1, round(subs.at_once.at(draw.random()))), draw.random() < subs.awaited
            )
            for _ in range(max(1, round(subs.launches.at(draw.random()))))
        }

    def _launch(self, subs: SubAgents, launch: _Launch, number: int, turn: Turn) -> float:
        """Draws the sub-agents that a turn starts. Returns when the main agent may go on."""
        ends = [self._sub_agent(subs, launch, number, turn).turns[-1].end_s for _ in range(launch.count)]
        return max(ends) + subs.resume_s.at(self._draw.random()) if launch.awaited else 0.0

    def _sub_agent(self, subs: SubAgents, launch: _Launch, number: int, turn: Turn) -> Agent:
        draw = self._draw
        level = inner(draw.random())
        first_prompt = max(1, round(subs.first_prompt.at(draw.random())))
        room = Room(
            max(1, round(subs.turns.at(level))),
            first_prompt,
            False,
            self._params.windows[0],
            len(self._common),
        )
        course = Course(False, room, self._copula.session(draw, level))
        walk = Walk(subs.behaviour, self._params.returns, self._copula, course, draw, self._ids)
        gap_s = hundredths(max(0.0, subs.start_s.at(draw.random())))
        first = walk.first(hundredths(turn.end_s + gap_s), gap_s, self._inherited(subs, first_prompt))
        if not self._common:
            self._common = first.new_blocks
        while walk.next() is not None:
            pass
        agent = Agent(
            f"agent_{len(self._subs) + 1:03d}", number, walk.turns, _about(walk.turns, launch.awaited)
        )
        self._subs.append(agent)
        return agent

    def _inherited(self, subs: SubAgents, first_prompt: int) -> array[int]:
        if not self._common or not subs.shared.cells:
            return array("q")
        part = min(1.0, subs.shared.at(self._draw.random()))
        return self._common[: int(part * first_prompt) // BLOCK_TOKENS]


def _about(turns: tuple[Turn, ...], awaited: bool) -> About:
    if not awaited:
        return About(status="async_launched")
    return About(status="completed", duration_ms=round(1000 * (turns[-1].end_s - turns[0].time_s)))


def _longest(session: Session) -> int:
    return max(turn.prompt_tokens for turn in session.main.turns)
