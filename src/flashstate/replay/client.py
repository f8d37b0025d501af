"""One completion over HTTP: token ids in, token ids out, streamed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import aiohttp

STALL_S = 120.0
"""A stream that sends nothing for this long has failed."""


@dataclass(frozen=True)
class Reply:
    """What came back. `ttft_s` is None if no token did; `error` is None, or "kind: detail".

    The kinds: refused (no connection), "http NNN", stall (nothing for too long), dropped (the stream broke
    off), garbled (not the protocol), short (fewer tokens than asked for).
    """

    tokens: tuple[int, ...]
    cached_tokens: int
    ttft_s: float | None
    e2e_s: float
    error: str | None = None


class CompletionClient:
    """Talks to one server. Use it as an async context.

    Every request has a connection of its own: a server that closes an idle one just as it is used again would
    look like a failed request.
    """

    def __init__(self, url: str, model: str, stall_s: float = STALL_S) -> None:
        self._url, self._model = url.rstrip("/"), model
        self._timeout = aiohttp.ClientTimeout(total=None, connect=stall_s, sock_read=stall_s)
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> CompletionClient:
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        self._http = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()

    async def metrics(self) -> str:
        """The server's /metrics page. Raises aiohttp.ClientError or TimeoutError."""
        async with self._session.get(f"{self._url}/metrics") as response:
            response.raise_for_status()
            return await response.text()

    async def complete(self, prompt: Sequence[int], output_tokens: int) -> Reply:
        """Asks for exactly `output_tokens` tokens after `prompt`. Never raises for a failed request."""
        answer = _Answer(started_s=time.monotonic())
        error = None
        try:
            await self._stream(prompt, output_tokens, answer)
        except TimeoutError:
            error = f"stall: nothing for {self._timeout.sock_read:g} s"
        except aiohttp.ClientConnectorError as refusal:
            error = f"refused: {refusal.strerror or refusal}"
        except (aiohttp.ClientError, ConnectionError) as broken:
            error = f"dropped: {broken or type(broken).__name__}"
        except _HttpError as status:
            error = str(status)
        except (ValueError, KeyError, TypeError, IndexError) as garbled:
            error = f"garbled: {garbled!r}"
        return answer.reply(output_tokens, error)

    @property
    def _session(self) -> aiohttp.ClientSession:
        assert self._http is not None, "use the client as an async context"
        return self._http

    async def _stream(self, prompt: Sequence[int], output_tokens: int, answer: _Answer) -> None:
        body = {
            "model": self._model,
            "prompt": [int(token) for token in prompt],
            "max_tokens": output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        async with self._session.post(f"{self._url}/v1/completions", json=body) as response:
            if response.status != 200:
                raise _HttpError(response.status, await response.text())
            async for event in _events(response):
                if event == "[DONE]":
                    answer.done = True
                    return
                answer.take(json.loads(event))


class _HttpError(Exception):
    def __init__(self, status: int, body: str) -> None:
        try:
            detail = json.loads(body)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            detail = body
        super().__init__(f"http {status}: {' '.join(str(detail).split())[:200]}")


@dataclass
class _Answer:
    started_s: float
    tokens: list[int] = field(default_factory=list)
    cached_tokens: int | None = None
    first_s: float | None = None
    done: bool = False

    def take(self, event: Mapping[str, Any]) -> None:
        if "error" in event:
            raise _HttpError(event["error"].get("code", 500), json.dumps(event))
        for choice in event["choices"]:
            tokens = choice["token_ids"] or []
            if tokens and self.first_s is None:
                self.first_s = time.monotonic()
            self.tokens.extend(tokens)
        if event.get("usage"):
            self.cached_tokens = int(event["usage"]["prompt_tokens_details"]["cached_tokens"] or 0)

    def reply(self, asked_tokens: int, error: str | None) -> Reply:
        ended_s = time.monotonic()
        if error is None and not self.done:
            error = "dropped: the stream ended early"
        if error is None and self.cached_tokens is None:
            error = "garbled: no usage in the stream"
        if error is None and len(self.tokens) != asked_tokens:
            error = f"short: {len(self.tokens)} of {asked_tokens} tokens"
        ttft_s = None if self.first_s is None else self.first_s - self.started_s
        return Reply(tuple(self.tokens), self.cached_tokens or 0, ttft_s, ended_s - self.started_s, error)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """The data of each server-sent event.

    Split by hand: the first event repeats the whole prompt, and aiohttp refuses lines that long.
    """
    pending = bytearray()
    async for chunk in response.content.iter_any():
        pending += chunk
        if b"\n" not in chunk:
            continue
        *lines, rest = pending.split(b"\n")
        pending = bytearray(rest)
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip().decode()
        await asyncio.sleep(0)
