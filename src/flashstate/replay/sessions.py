"""Sessions at work: each plays one play after another, its agents side by side."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from flashstate.replay.dialogue import Asked, Dialogue
from flashstate.replay.plan import Key, Play, Step, Workload
from flashstate.replay.record import Record
from flashstate.traces.session import MAIN_AGENT

Steps = tuple[Step, ...]


@dataclass(frozen=True)
class Ended:
    """A request that has ended: its record, and which session asked it in which play."""

    session: int
    play: int
    record: Record
    says_cached: bool = True


def _ignore(_session: int, _play: int) -> None:
    pass


@dataclass(frozen=True)
class Player:
    """How a workload is played. `dialogue` opens one for a play of a session.

    `on_end` is told of every request that ended, `on_play` (session, play) of every play that did. Plays whose
    numbers are in `done` are left out. A failed request is told like any other and its agent goes on, after
    `failed_pause_s` seconds more: a server that refuses at once is not to be run over.
    """

    workload: Workload
    dialogue: Callable[[Play, int], Dialogue]
    on_end: Callable[[Ended], None]
    on_play: Callable[[int, int], None] = _ignore
    done: frozenset[int] = frozenset()
    failed_pause_s: float = 0.0

    @contextlib.asynccontextmanager
    async def running(self, started_s: float) -> AsyncIterator[Sequence[asyncio.Task[None]]]:
        """All sessions, a task each, until they are over or the context is left. Then no task is left.

        `started_s`: when the run began, on the clock of time.monotonic.
        """
        sessions = [
            asyncio.create_task(_Session(self, number, started_s).run())
            for number in range(self.workload.sessions)
        ]
        try:
            yield sessions
        finally:
            for session in sessions:
                session.cancel()
            await asyncio.gather(*sessions, return_exceptions=True)


class _Session:
    """One session. Its main agents run in its own task; a sub-agent has a task while it runs."""

    def __init__(self, player: Player, number: int, started_s: float) -> None:
        self._player, self._number, self._started_s = player, number, started_s

    async def run(self) -> None:
        await asyncio.sleep(self._player.workload.start_s(self._number))
        for play in self._player.workload.plays(self._number):
            if play.number not in self._player.done:
                await self._play(play)
                self._player.on_play(self._number, play.number)

    async def _play(self, play: Play) -> None:
        dialogue = self._player.dialogue(play, self._number)
        main, *others = play.agents
        waiting: dict[Key | None, list[Steps]] = {}
        for steps in others:
            waiting.setdefault(steps[0].after, []).append(steps)
        async with asyncio.TaskGroup() as agents:

            def spawn(ended: Key | None) -> None:
                for steps in waiting.pop(ended, ()):
                    agents.create_task(self._agent(play, dialogue, steps, spawn))

            spawn(None)
            await self._agent(play, dialogue, main, spawn)

    async def _agent(
        self, play: Play, dialogue: Dialogue, steps: Steps, spawn: Callable[[Key], None]
    ) -> None:
        pause_s = 0.0
        for step in steps:
            await asyncio.sleep(step.gap_s + pause_s)
            asked = await dialogue.ask(step)
            end_s = time.monotonic() - self._started_s
            record = _record(play, step, asked, end_s)
            self._player.on_end(Ended(self._number, play.number, record, asked.reply.says_cached))
            pause_s = 0.0 if record.error is None else self._player.failed_pause_s
            spawn(step.key)


def _record(play: Play, step: Step, asked: Asked, end_s: float) -> Record:
    reply = asked.reply
    return Record(
        session=play.name if step.agent == MAIN_AGENT else f"{play.name}/{step.agent}",
        turn=step.turn,
        kind=step.kind,
        prompt_tokens=asked.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        ideal_tokens=asked.ideal_tokens,
        output_tokens=reply.output_tokens,
        ttft_s=reply.ttft_s,
        e2e_s=reply.e2e_s,
        start_s=end_s - reply.e2e_s,
        end_s=end_s,
        error=reply.error,
    )
