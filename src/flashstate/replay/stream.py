"""The stream that answers a request: server-sent events, as OpenAI-compatible servers write them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec

_DETAIL_CHARACTERS = 200


@dataclass(frozen=True)
class Reply:
    """What came back. `ttft_s` is None if no token did; `error` is None, or "kind: detail".

    The kinds: refused (no connection), "http NNN", stall (nothing for too long), dropped (the stream broke
    off), garbled (not the protocol), short (fewer tokens than asked for).

    `tokens` are ids, and empty where text was asked for; `text` is then what was said. `prompt_tokens` and
    `output_tokens` are the server's counts (0 where it gave none). `cached_tokens` is 0 where the server does
    not say, and `says_cached` then False.
    """

    tokens: tuple[int, ...]
    cached_tokens: int
    ttft_s: float | None
    e2e_s: float
    error: str | None = None
    text: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    says_cached: bool = True


class HttpError(Exception):
    """The server refused a request. One line: "http NNN: why"."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"http {status}: {_detail(body)}")
        self.status = status


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: _Details | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    delta: _Delta | None = None


class _Event(msgspec.Struct):
    """What we read of an event. Decoding skips the rest: the first one repeats the whole prompt."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_EVENTS = msgspec.json.Decoder(_Event)


@dataclass
class Answer:
    """Collects a stream. `started_s` is when the request was sent, on the clock of time.monotonic."""

    started_s: float
    _tokens: list[int] = field(default_factory=list)
    _text: list[str] = field(default_factory=list)
    _usage: _Usage | None = None
    _first_s: float | None = None
    _done: bool = False

    async def read(self, response: aiohttp.ClientResponse) -> None:
        """Takes the stream to its end. Raises HttpError for an error event, ValueError for what is no event."""
        async for event in _events(response):
            if event == b"[DONE]":
                self._done = True
                return
            self._take(event)

    def _take(self, data: bytes) -> None:
        event = _EVENTS.decode(data)
        if event.error is not None:
            raise HttpError(_code(event.error), data)
        for choice in event.choices:
            said = choice.delta or _Delta()
            if self._first_s is None and (
                choice.token_ids or said.content or said.reasoning or said.reasoning_content
            ):
                self._first_s = time.monotonic()
            self._tokens.extend(choice.token_ids or ())
            self._text.append(said.content or "")
        self._usage = event.usage or self._usage

    def reply(self, asked_tokens: int, error: str | None, *, as_text: bool = False) -> Reply:
        """What came of it, after `error` if there was one. `as_text`: the server's count is what was generated."""
        ended_s = time.monotonic()
        usage = self._usage or _Usage()
        details = usage.prompt_tokens_details
        output_tokens = (usage.completion_tokens or 0) if as_text else len(self._tokens)
        if error is None and not self._done:
            error = "dropped: the stream ended early"
        if error is None and self._usage is None:
            error = "garbled: no usage in the stream"
        if error is None and output_tokens != asked_tokens:
            error = f"short: {output_tokens} of {asked_tokens} tokens"
        return Reply(
            tokens=tuple(self._tokens),
            cached_tokens=(details.cached_tokens or 0) if details else 0,
            ttft_s=None if self._first_s is None else self._first_s - self.started_s,
            e2e_s=ended_s - self.started_s,
            error=error,
            text="".join(self._text),
            prompt_tokens=usage.prompt_tokens,
            output_tokens=output_tokens,
            says_cached=details is not None and details.cached_tokens is not None,
        )


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
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
                yield bytes(line[5:].strip())
        await asyncio.sleep(0)


def _code(error: Any) -> int:
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else 500


def _detail(body: bytes) -> str:
    """The message of an error: vLLM puts it into `error`, SGLang beside it."""
    text = body.decode(errors="replace")
    try:
        found = msgspec.json.decode(body)
    except ValueError:
        found = None
    if isinstance(found, dict):
        inner = found.get("error")
        text = next(
            (str(m) for m in (_message(inner), inner, found.get("message")) if m and not isinstance(m, dict)),
            text,
        )
    return " ".join(text.split())[:_DETAIL_CHARACTERS]


def _message(error: Any) -> Any:
    return error.get("message") if isinstance(error, dict) else None
