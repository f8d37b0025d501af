"""Plays a workload against a server and records every request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp
import numpy as np

from flashstate.replay.client import CompletionClient, Reply
from flashstate.replay.counters import grown, missed_tokens
from flashstate.replay.ideal import ComputedPrefixes
from flashstate.replay.plan import Key, Play, Step, Workload
from flashstate.replay.record import Record
from flashstate.replay.transcript import Tokens, Transcript
from flashstate.traces.session import MAIN_AGENT


@dataclass(frozen=True)
class Window:
    """What is measured: `measure_s` seconds after `warmup_s` seconds. None: all the work, to its end."""

    warmup_s: float = 0.0
    measure_s: float | None = None


@dataclass(frozen=True)
class Replay:
    """What came of it. Times in seconds since the start of the run.

    `records` holds every request that ended, also those outside the measured time. `misses_tokens` is what
    the server counted in the measured time, by reason; None where it does not count.
    """

    records: tuple[Record, ...]
    opened_s: float
    closed_s: float
    misses_tokens: Mapping[str, int] | None

    @property
    def measured(self) -> tuple[Record, ...]:
        """The requests that ended within the measured time."""
        return tuple(r for r in self.records if self.opened_s <= r.end_s <= self.closed_s)


async def replay(
    workload: Workload,
    client: CompletionClient,
    ids: range,
    window: Window,
    on_record: Callable[[Record], None] = lambda _: None,
) -> Replay:
    """Runs the workload until it is over or the window has closed, whichever comes first.

    `ids`: the token ids that prompts are made of. `on_record` sees each record as its request ends; the
    records so far therefore outlive a run that is cancelled. A failed request is recorded and its session
    goes on.
    """
    run = _Run(client, ids, on_record)
    sessions = [asyncio.create_task(run.session(workload, number)) for number in range(workload.sessions)]
    try:
        await _wait(sessions, window.warmup_s)
        before, opened_s = await _misses(client), run.now_s if window.warmup_s else 0.0
        await _wait(sessions, window.measure_s)
        closed_s = run.now_s
        after = await _misses(client)
    finally:
        for session in sessions:
            session.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)
    return Replay(tuple(run.records), opened_s, closed_s, grown(before, after))


async def _wait(sessions: Sequence[asyncio.Task[None]], seconds: float | None) -> None:
    """Waits for so long, or until all sessions are over. An error in one of them is raised here."""
    if seconds == 0:
        return
    over, _ = await asyncio.wait(sessions, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for session in over:
        session.result()


async def _misses(client: CompletionClient) -> Mapping[str, float] | None:
    try:
        return missed_tokens(await client.metrics())
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None


class _Run:
    """What the sessions of one run share."""

    def __init__(self, client: CompletionClient, ids: range, on_record: Callable[[Record], None]) -> None:
        self._client, self._ids, self._on_record = client, ids, on_record
        self._computed = ComputedPrefixes()
        self._started_s = time.monotonic()
        self.records: list[Record] = []

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._started_s

    async def session(self, workload: Workload, number: int) -> None:
        await asyncio.sleep(workload.start_s(number))
        for play in workload.plays(number):
            await self._play(play)

    async def _play(self, play: Play) -> None:
        transcript = Transcript(play, self._ids)
        ended = {step.key: asyncio.Event() for agent in play.agents for step in agent}
        async with asyncio.TaskGroup() as agents:
            for steps in play.agents:
                agents.create_task(self._agent(play, steps, transcript, ended))

    async def _agent(
        self, play: Play, steps: tuple[Step, ...], transcript: Transcript, ended: Mapping[Key, asyncio.Event]
    ) -> None:
        for step in steps:
            if step.after is not None:
                await ended[step.after].wait()
            await asyncio.sleep(step.gap_s)
            prompt = transcript.prompt(step)
            output = await self._request(play, step, prompt)
            transcript.finish(step, prompt, output)
            ended[step.key].set()

    async def _request(self, play: Play, step: Step, prompt: Tokens) -> Tokens:
        ideal_tokens, start_s = self._computed.longest(prompt), self.now_s
        reply = await self._client.complete(prompt.tolist(), step.output_tokens)
        output = np.asarray(reply.tokens, dtype=np.int32)
        if reply.error is None:
            # The last token was sampled, never consumed.
            self._computed.add(np.concatenate((prompt, output[:-1])))
        name = play.name if step.agent == MAIN_AGENT else f"{play.name}/{step.agent}"
        record = _record(name, step, reply, ideal_tokens, start_s)
        self.records.append(record)
        self._on_record(record)
        return output


def _record(session: str, step: Step, reply: Reply, ideal_tokens: int, start_s: float) -> Record:
    return Record(
        session=session,
        turn=step.turn,
        kind=step.kind,
        prompt_tokens=step.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        ideal_tokens=ideal_tokens,
        output_tokens=len(reply.tokens),
        ttft_s=reply.ttft_s,
        e2e_s=reply.e2e_s,
        start_s=start_s,
        end_s=start_s + reply.e2e_s,
        error=reply.error,
    )
