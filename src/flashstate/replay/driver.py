"""Plays a workload against a server, whole or for a time, and keeps every record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from flashstate.replay.client import CompletionClient
from flashstate.replay.counters import grown, missed_tokens
from flashstate.replay.dialogue import TokenDialogue
from flashstate.replay.plan import Play, Workload
from flashstate.replay.record import Record
from flashstate.replay.sessions import Ended, Player
from flashstate.replay.transcript import Transcript


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
    records: list[Record] = []

    def keep(ended: Ended) -> None:
        records.append(ended.record)
        on_record(ended.record)

    def dialogue(play: Play, _session: int) -> TokenDialogue:
        return TokenDialogue(Transcript(play, ids), client)

    started_s = time.monotonic()
    async with Player(workload, dialogue, keep).running(started_s) as sessions:
        await _wait(sessions, window.warmup_s)
        before = await _misses(client)
        opened_s = time.monotonic() - started_s if window.warmup_s else 0.0
        await _wait(sessions, window.measure_s)
        closed_s = time.monotonic() - started_s
        after = await _misses(client)
    return Replay(tuple(records), opened_s, closed_s, grown(before, after))


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
