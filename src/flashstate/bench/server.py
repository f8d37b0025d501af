"""A server as a child process: in a process group of its own, watched, and ended with all its children."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import socket
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import aiohttp

from flashstate.bench.error import BenchError

T = TypeVar("T")

HOST = "127.0.0.1"
START_LIMIT_S = 300.0
STOP_LIMIT_S = 5.0
_SETTLE_LIMIT_S = 2.0
_HEALTH_LIMIT_S = 30.0
_POLL_S = 0.2
_TAIL_LINES = 8
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_CAUSE = re.compile(r"(?:^|\] )((?:\w+\.)*\w*(?:Error|Exception): .*)")


class Server:
    """One server process. Use `running` around it: whatever happens, no process of it is left."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], port: int, log: Path
    ) -> None:
        self.name, self.port, self.log = name, port, log
        self._command, self._environment = command, environment
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{HOST}:{self.port}"

    @property
    def group(self) -> int:
        """The number of its process group."""
        assert self._process is not None, "not started"
        return self._process.pid

    async def start(self, cores: frozenset[int] | None = None) -> float:
        """Starts the process and waits until it answers; returns the seconds that took.

        `cores`: what it may run on. Raises BenchError if it dies, or is not up after START_LIMIT_S.
        """
        begun_s = time.monotonic()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                env=dict(self._environment),
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        if cores:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(self._process.pid, cores)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
            while not await _healthy(http, self.url):
                if self._process.returncode is not None:
                    raise self.died()
                if time.monotonic() - begun_s > START_LIMIT_S:
                    raise BenchError(
                        f"{self.name}: the server is not up after {START_LIMIT_S:.0f} s\n{self._tail()}"
                    )
                await asyncio.sleep(_POLL_S)
        return time.monotonic() - begun_s

    async def check(self) -> None:
        """Raises BenchError if the engine is gone. vLLM's API process outlives it and goes on answering."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_HEALTH_LIMIT_S)) as http:
            if not await _healthy(http, self.url):
                raise BenchError(
                    f"{self.name}: the engine died; its server says so at /health\n{self._tail()}"
                )

    async def wait(self) -> None:
        """Returns when the process has ended by itself."""
        assert self._process is not None, "not started"
        await self._process.wait()

    def died(self) -> BenchError:
        """The error to raise when it has ended by itself."""
        code = self._process.returncode if self._process is not None else None
        how = (
            f"killed by {signal.Signals(-code).name}"
            if code is not None and code < 0
            else f"exit code {code}"
        )
        return BenchError(f"{self.name}: the server died ({how})\n{self._tail()}")

    async def stop(self) -> None:
        """Asks it to end, then kills what is left of its process group. Harmless if it has ended."""
        if self._process is None:
            return
        group = self._process.pid
        try:
            if self._process.returncode is None:
                self._process.send_signal(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), STOP_LIMIT_S)
            # Python's resource tracker outlives the server for a moment, to free its shared memory.
            deadline_s = time.monotonic() + _SETTLE_LIMIT_S
            while _exists(group) and time.monotonic() < deadline_s:
                await asyncio.sleep(_POLL_S / 4)
        finally:
            # Also when a second Ctrl-C cuts the waiting short.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        await self._process.wait()

    def _tail(self) -> str:
        """The first error in the log, if it names one, and the log's last lines."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        lines = [line[:300] for line in text.splitlines() if line.strip()]
        causes = [match[1] for line in lines if (match := _CAUSE.search(line))]
        first = [f"First error: {causes[0]}"] if causes else []
        return "\n".join([*first, f"The end of {self.log}:", *(f"  {line}" for line in lines[-_TAIL_LINES:])])


@contextlib.asynccontextmanager
async def running(server: Server, cores: frozenset[int] | None = None) -> AsyncIterator[float]:
    """Starts a server and ends it, come what may. Gives the seconds that the start took."""
    try:
        yield await server.start(cores)
    finally:
        await server.stop()


async def while_alive(server: Server, work: Coroutine[None, None, T]) -> T:
    """The work's result; BenchError as soon as the server has died."""
    working, death = asyncio.ensure_future(work), asyncio.ensure_future(server.wait())
    try:
        await asyncio.wait({working, death}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise server.died()
        return working.result()
    finally:
        working.cancel()
        death.cancel()
        await asyncio.gather(working, death, return_exceptions=True)


async def _healthy(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(f"{url}/health") as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


def _end_with_parent() -> None:
    """In the child, before it runs: a parent that is killed outright cannot end it, so the kernel does."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _exists(group: int) -> bool:
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def free_port() -> int:
    """A port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def check_port(port: int) -> None:
    """Raises BenchError if somebody listens on it, or we may not."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise BenchError(
                f"port {port} on {HOST}: {error.strerror}; choose another, or leave out --port for a free one"
            ) from None
