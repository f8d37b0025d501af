"""One request over HTTP, streamed: token ids in and out, or messages in and text out."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import aiohttp
import msgspec

from flashstate.replay.stream import Answer, HttpError, Reply

__all__ = ["STALL_S", "CompletionClient", "HttpError", "Message", "Model", "Reply"]

STALL_S = 120.0
"""A stream that sends nothing for this long has failed."""

Message = dict[str, str]
"""`role` and `content`, as chat completions take them."""


@dataclass(frozen=True)
class Model:
    """A model that a server offers. `most_tokens`: prompt and output together; None where it does not say."""

    name: str
    most_tokens: int | None


class _Listed(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Listing(msgspec.Struct):
    data: list[_Listed]


class CompletionClient:
    """Talks to one server. Use it as an async context. `url` is the server's, with or without /v1.

    Every request has a connection of its own: a server that closes an idle one just as it is used again would
    look like a failed request.
    """

    def __init__(self, url: str, model: str, stall_s: float = STALL_S) -> None:
        self.url, self._model = url.rstrip("/").removesuffix("/v1"), model
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
        async with self._session.get(f"{self.url}/metrics") as response:
            response.raise_for_status()
            return await response.text()

    async def models(self) -> tuple[Model, ...]:
        """What the server offers. Raises aiohttp.ClientError, TimeoutError, HttpError, or ValueError for nonsense."""
        async with self._session.get(f"{self.url}/v1/models") as response:
            body = await response.read()
            if response.status != 200:
                raise HttpError(response.status, body)
        listing = msgspec.json.decode(body, type=_Listing)
        return tuple(Model(model.id, model.max_model_len) for model in listing.data)

    async def complete(self, prompt: list[int], output_tokens: int, cache_salt: str | None = None) -> Reply:
        """Asks for exactly `output_tokens` tokens after `prompt`. Never raises for a failed request."""
        data = self._encoded({"prompt": prompt, "return_token_ids": True}, output_tokens, cache_salt)
        del prompt  # as a list it takes ten times the room of its JSON, and the answer may be minutes away
        return await self._ask("completions", data, output_tokens, as_text=False)

    async def chat(
        self, messages: Sequence[Message], output_tokens: int, cache_salt: str | None = None
    ) -> Reply:
        """Asks for exactly `output_tokens` tokens after `messages`. Never raises for a failed request."""
        data = self._encoded({"messages": messages}, output_tokens, cache_salt)
        return await self._ask("chat/completions", data, output_tokens, as_text=True)

    @property
    def _session(self) -> aiohttp.ClientSession:
        assert self._http is not None, "use the client as an async context"
        return self._http

    def _encoded(self, asked: Mapping[str, Any], output_tokens: int, cache_salt: str | None) -> bytes:
        body = {
            "model": self._model,
            **asked,
            "max_tokens": output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({} if cache_salt is None else {"cache_salt": cache_salt}),
        }
        return msgspec.json.encode(body)

    async def _ask(self, path: str, data: bytes, output_tokens: int, *, as_text: bool) -> Reply:
        answer, error = Answer(started_s=time.monotonic()), None
        try:
            await self._stream(path, data, answer)
        except TimeoutError:
            error = f"stall: nothing for {self._timeout.sock_read:g} s"
        except aiohttp.ClientConnectorError as refusal:
            error = f"refused: {refusal.strerror or refusal}"
        except (aiohttp.ClientError, ConnectionError) as broken:
            error = f"dropped: {broken or type(broken).__name__}"
        except HttpError as status:
            error = str(status)
        except ValueError as garbled:
            error = f"garbled: {garbled!r}"
        return answer.reply(output_tokens, error, as_text=as_text)

    async def _stream(self, path: str, data: bytes, answer: Answer) -> None:
        headers = {"Content-Type": "application/json"}
        async with self._session.post(
            f"{self.url}/v1/{path}", data=io.BytesIO(data), headers=headers
        ) as response:
            if response.status != 200:
                raise HttpError(response.status, await response.read())
            await answer.read(response)
