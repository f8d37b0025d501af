"""A small server that speaks the completions stream: a perfect prefix cache, with faults to order."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
from aiohttp import web
from aiohttp.test_utils import TestServer

from flashstate.replay.ideal import ComputedPrefixes

Fault = Callable[[int], str | None]
"""From the number of a request to what goes wrong with it; None: nothing."""


@dataclass
class FakeEngine:
    fault: Fault = lambda number: None
    delay_s: float = 0.0
    metrics_delay_s: float = 0.0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    connections: set[str] = field(default_factory=set)
    missed: int = 0
    counts_misses: bool = True
    models: tuple[str, ...] = ("tiny",)
    most_tokens: int | None = None
    knows_salt: bool = True
    says_cached: bool = True
    says_ids: bool = True
    vocabulary: int = 1 << 30
    served: int = 0
    keeps_bodies: bool = True
    _computed: dict[str, ComputedPrefixes] = field(default_factory=lambda: defaultdict(ComputedPrefixes))

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_post("/v1/chat/completions", self.completions)
        app.router.add_get("/v1/models", self.list_models)
        app.router.add_get("/metrics", self.metrics)
        return app

    async def list_models(self, request: web.Request) -> web.Response:
        models = [{"id": name, "max_model_len": self.most_tokens} for name in self.models]
        return web.json_response({"object": "list", "data": models})

    async def metrics(self, request: web.Request) -> web.Response:
        await asyncio.sleep(self.metrics_delay_s)
        lines = ["# TYPE fake:requests_total counter", f"fake:requests_total {self.served}.0"] + [
            f'flashstate:missed_tokens_total{{reason="{r}"}} {self.missed}.0'
            for r in ("placement", "capacity")
        ]
        return web.Response(text="\n".join(lines) + "\n" if self.counts_misses else "other_total 1.0\n")

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        number = self.served
        self.served += 1
        if self.keeps_bodies:
            self.bodies.append(body)
        peer = request.transport.get_extra_info("peername") if request.transport else None
        self.connections.add(str(peer))
        fault = self.fault(number)
        if fault == "500":
            return web.json_response({"error": {"message": "the engine\n is not well"}}, status=500)
        if self.knows_salt and body.get("cache_salt") == "":
            return web.json_response({"error": {"message": "an empty salt"}}, status=400)
        if max(body.get("prompt", [0])) >= self.vocabulary:
            return web.json_response({"object": "error", "message": "out of vocabulary"}, status=400)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        with suppress(ConnectionResetError):  # a client may go at any time
            await response.prepare(request)
            await self._stream(response, request, body, fault)
        return response

    async def _stream(
        self, response: web.StreamResponse, request: web.Request, body: dict[str, Any], fault: str | None
    ) -> None:
        async def send(event: dict[str, Any] | str) -> None:
            text = event if isinstance(event, str) else json.dumps(event)
            await response.write(f"data: {text}\n\n".encode())

        prompt = tokens_of(body)
        computed = self._computed[body.get("cache_salt", "") if self.knows_salt else ""]
        cached = computed.longest(prompt)
        self.missed += 10
        output = [int(prompt.sum() + i) % 1000 + 16 for i in range(body["max_tokens"])]
        if fault == "refuse-stream":
            await send({"error": {"message": "out of luck", "code": 503}})
            return
        for i, token in enumerate(output[:-1] if fault == "short" else output):
            await asyncio.sleep(self.delay_s)
            choice = self._choice(token, "messages" in body)
            if i == 0 and "prompt" in body:
                choice["prompt_token_ids"] = body["prompt"]  # a very long line, as vLLM sends it
            await send("{" if fault == "garble" and i == 1 else {"choices": [choice]})
            if fault == "drop" and i == 1:
                assert request.transport is not None
                request.transport.abort()
                return
            if fault == "stall" and i == 1:
                await asyncio.sleep(30)
        if fault != "no-usage":
            usage = {"prompt_tokens": len(prompt), "completion_tokens": len(output) - (fault == "short")}
            details = {"prompt_tokens_details": {"cached_tokens": cached} if self.says_cached else None}
            await send({"choices": [], "usage": usage | details})
        await send("[DONE]")
        if "messages" in body:  # as it will come back
            said = " ".join(f"said{token}" for token in output)
            again = tokens_of({"messages": [{"role": "assistant", "content": said}]})
        else:
            again = np.array(output, dtype=np.int32)
        computed.add(np.concatenate((prompt, again[:-1])))

    def _choice(self, token: int, is_chat: bool) -> dict[str, Any]:
        if is_chat:
            return {"index": 0, "delta": {"content": f" said{token}"}}
        return {"index": 0, "text": "", **({"token_ids": [token]} if self.says_ids else {})}


def tokens_of(body: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """A prompt's tokens; of messages, two a word, one a role or word of the model's own."""
    if "prompt" in body:
        return np.array(body["prompt"], dtype=np.int32)
    found: list[int] = []
    for message in body["messages"]:
        for word in (message["role"], *message["content"].split()):
            is_one = word in ("user", "assistant") or word.startswith("said")
            found += [crc32(word.encode()) >> 1] * (1 if is_one else 2)
    return np.array(found, dtype=np.int32)


@asynccontextmanager
async def serving(engine: FakeEngine) -> AsyncIterator[str]:
    """Runs it on a free loopback port; gives its address."""
    server = TestServer(engine.app(), host="127.0.0.1")
    await server.start_server()
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()
