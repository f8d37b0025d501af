"""One part of a run, from its start to its close: load, window, log, and what may end it before its time."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

import aiohttp

from flashstate.console import interrupts
from flashstate.percentiles import p50_p90
from flashstate.replay.chat_transcript import ChatTranscript
from flashstate.replay.client import CompletionClient
from flashstate.replay.counters import grown, missed_tokens
from flashstate.replay.dialogue import ChatDialogue, Dialogue, TokenDialogue
from flashstate.replay.plan import Play, Workload
from flashstate.replay.preflight import Target
from flashstate.replay.run_log import Event, RunLog
from flashstate.replay.sessions import Ended, Player
from flashstate.replay.totals import Totals
from flashstate.replay.transcript import Transcript
from flashstate.replay.watch import Watch, counters
from flashstate.urls import without_passwords

T = TypeVar("T")

INTERRUPTED: Final = "interrupted"
_TICK_S: Final = 0.5
_FAILED_PAUSE_S: Final = 1.0


@dataclass(frozen=True)
class Load:
    """What to put before which servers, and for how long (seconds). `run` names this run among all others.

    `measure_s`: None measures all the work, to its end.
    """

    workload: Workload
    targets: tuple[Target, ...]
    ids: range
    chat: bool
    warmup_s: float
    measure_s: float | None
    stall_s: float
    run: str


OnTick = Callable[[float], None]
"""Called twice a second with the seconds since the start."""


async def conduct(
    load: Load,
    log: RunLog,
    totals: Totals,
    on_tick: OnTick = lambda _: None,
    then: Callable[[], None] = lambda: None,
) -> None:
    """Runs the load until `measure_s` is measured, less what `totals` has from earlier parts, or all work is done.

    Everything that happens is written to `log` and added to `totals`; so is why it ended before its time:
    Ctrl-C or a kill, a server that is gone, a disk that is full. `then` is called when signals are no longer taken for
    that: at the end, or as soon as there was one, whose successor would else end the program at once.
    """
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(CompletionClient(target.url, target.model.name, load.stall_s))
            for target in load.targets
        ]
        part = _Part(load, log, totals, clients)
        with _told_of_signals(part.stop, then):
            await part.run(on_tick)


class _Part:
    def __init__(self, load: Load, log: RunLog, totals: Totals, clients: Sequence[CompletionClient]) -> None:
        self._load, self._log, self._totals, self._clients = load, log, totals, clients
        self._number = len(totals.parts)
        self._left_s = None if load.measure_s is None else load.measure_s - totals.measured_s
        self._watches = [Watch(client.url) for client in clients]
        self._started_s = time.monotonic()
        self._measured = False
        self._late_s = array("d")
        self._full = False
        self._stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def stop(self, why: str) -> None:
        """Ends the part; the first reason counts."""
        if not self._stopped.done():
            self._stopped.set_result(why)

    async def run(self, on_tick: OnTick) -> None:
        # Without a warm-up no request may come before the window.
        before = None if self._load.warmup_s else await self._pages()
        self._started_s = time.monotonic()
        self._note({"event": "started", "at": datetime.now().astimezone().isoformat("T", "seconds")})
        if before is not None:
            self._open(0.0)
        player = Player(
            self._load.workload, self._dialogue, self._on_end, self._on_play, frozenset(self._totals.done),
            _FAILED_PAUSE_S,
        )  # fmt: skip
        async with player.running(self._started_s) as sessions:
            ticking = asyncio.create_task(self._tick(on_tick))
            try:
                before = await self._until_closed(sessions, before)
            finally:
                ticking.cancel()
            closed_s, over = self._now_s, all(session.done() for session in sessions)
        await self._close(closed_s, before, over=over)

    async def _until_closed(
        self, sessions: Sequence[asyncio.Task[None]], before: list[str | None] | None
    ) -> list[str | None]:
        """Waits for the warm-up, if the window is not open, and the measured time.

        `before`: the servers' /metrics as of the window's opening, as is what it gives.
        """
        if before is None:
            await self._wait(sessions, self._load.warmup_s)
            if self._stopped.done():
                return []
            before = await self._pages()
            self._open(self._now_s)
        await self._wait(sessions, self._left_s)
        return before

    def _open(self, now_s: float) -> None:
        self._measured = True
        self._note({"event": "opened", "s": round(now_s, 6)})

    async def _wait(self, sessions: Sequence[asyncio.Task[None]], seconds: float | None) -> None:
        """Waits for so long (None: for ever), or until all work is done or something ends the part.

        An error in a session is a bug, and raised.
        """
        work = asyncio.create_task(asyncio.wait(sessions, return_when=asyncio.FIRST_EXCEPTION))
        ends: set[asyncio.Future[Any]] = {work, self._stopped}
        try:
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            work.cancel()
        for session in sessions:
            if session.done():
                session.result()

    async def _close(self, closed_s: float, before: Sequence[str | None], *, over: bool) -> None:
        after = await self._pages() if before else []
        missed: dict[str, int] = {}
        for old, new in zip(before, after, strict=True):
            for reason, tokens in (_grown(old, new) or {}).items():
                missed[reason] = missed.get(reason, 0) + tokens
        late = p50_p90(self._late_s)
        self._note({
            "event": "closed", "s": round(closed_s, 6), "over": over,
            "stopped": self._stopped.result() if self._stopped.done() else None,
            "restarts": sum(watch.restarts for watch in self._watches), "missed_tokens": missed or None,
            "client_late_s": None if late is None else round(late[1], 6),
        })  # fmt: skip

    async def _pages(self) -> list[str | None]:
        """The /metrics page of each server; None of one that has none. Shows a server that is another process."""
        pages = await asyncio.gather(*(_page(client, self._load.stall_s) for client in self._clients))
        for watch, page in zip(self._watches, pages, strict=True):
            with contextlib.suppress(ValueError):
                watch.compare(counters(page) if page is not None else None)
        return list(pages)

    def _dialogue(self, play: Play, session: int) -> Dialogue:
        """Each play of each part has prefixes of its own: nothing a server holds from before is a hit."""
        client, target = _at(self._clients, session), _at(self._load.targets, session)
        salt = f"{self._load.run}-{self._number}-{play.number}"
        bust = None if target.takes_salt else int.from_bytes(hashlib.sha256(salt.encode()).digest()[:8])
        cache_salt = salt if target.takes_salt else None
        if self._load.chat:
            return ChatDialogue(ChatTranscript(play, target.tokens_per_word, bust), client, cache_salt)
        return TokenDialogue(Transcript(play, self._load.ids, bust), client, cache_salt)

    def _on_end(self, ended: Ended) -> None:
        client, watch = _at(self._clients, ended.session), _at(self._watches, ended.session)
        watch.saw(ended.record, self._now_s)
        self._note({
            "event": "request", "session": ended.session, "play": ended.play, "server": without_passwords(client.url),
            "measured": self._measured, "says_cached": ended.says_cached,
        } | _rounded(asdict(ended.record)))  # fmt: skip

    def _on_play(self, session: int, play: int) -> None:
        self._note({"event": "play", "session": session, "play": play})

    def _note(self, event: Event) -> None:
        """Writes it down, then counts it: the figures are never of more than what is written, but for the close."""
        if not self._full:
            try:
                self._log.append(event | {"part": self._number})
            except OSError as error:
                self._full = True
                self.stop(f"{self._log.path}: cannot be written: {error.strerror or error}")
        if not self._full or event["event"] == "closed":
            self._totals.take(event)

    async def _tick(self, on_tick: OnTick) -> None:
        while True:
            due_s = self._now_s + _TICK_S
            await asyncio.sleep(_TICK_S)
            if self._measured:
                self._late_s.append(max(0.0, self._now_s - due_s))
            on_tick(self._now_s)
            for watch in self._watches:
                if (why := watch.gone(self._load.stall_s)) is not None:
                    self.stop(why)

    @property
    def _now_s(self) -> float:
        return time.monotonic() - self._started_s


def _at(servers: Sequence[T], session: int) -> T:
    """Sessions take the servers in turn, and stay."""
    return servers[session % len(servers)]


def _grown(before: str | None, after: str | None) -> Mapping[str, int] | None:
    try:
        return grown(missed_tokens(before or ""), missed_tokens(after or ""))
    except ValueError:
        return None


async def _page(client: CompletionClient, limit_s: float) -> str | None:
    try:
        async with asyncio.timeout(min(limit_s, 10.0)):
            return await client.metrics()
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        return None


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in record.items()}


@contextlib.contextmanager
def _told_of_signals(stop: Callable[[str], None], then: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C, a kill or a closed terminal end the part in good order; a second one the program, or as `then` says."""
    loop, numbers = asyncio.get_running_loop(), tuple(interrupts())

    def interrupt() -> None:
        forget()
        stop(INTERRUPTED)

    def forget() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
        then()

    for number in numbers:
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        forget()
