"""A small server that speaks the completions stream: a perfect prefix cache, with faults to order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

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
    bodies: list[dict[str, Any]] = field(default_factory=list)
    connections: set[str] = field(default_factory=set)
    missed: int = 0
    counts_misses: bool = True
    _computed: ComputedPrefixes = field(default_factory=ComputedPrefixes)

    async def metrics(self, request: web.Request) -> web.Response:
        lines = [
            f'flashstate:missed_tokens_total{{reason="{r}"}} {self.missed}.0'
            for r in ("placement", "capacity")
        ]
        return web.Response(text="\n".join(lines) + "\n" if self.counts_misses else "other_total 1.0\n")

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        number = len(self.bodies)
        self.bodies.append(body)
        peer = request.transport.get_extra_info("peername") if request.transport else None
        self.connections.add(str(peer))
        fault = self.fault(number)
        if fault == "500":
            return web.json_response({"error": {"message": "the engine\n is not well"}}, status=500)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await self._stream(response, request, body, fault)
        return response

    async def _stream(
        self, response: web.StreamResponse, request: web.Request, body: dict[str, Any], fault: str | None
    ) -> None:
        async def send(event: dict[str, Any] | str) -> None:
            text = event if isinstance(event, str) else json.dumps(event)
            await response.write(f"data: {text}\n\n".encode())

        prompt = np.array(body["prompt"], dtype=np.int32)
        cached = self._computed.longest(prompt)
        self.missed += 10
        output = [int(prompt.sum() + i) % 1000 + 16 for i in range(body["max_tokens"])]
        if fault == "refuse-stream":
            await send({"error": {"message": "out of luck", "code": 503}})
            return
        for i, token in enumerate(output[:-1] if fault == "short" else output):
            await asyncio.sleep(self.delay_s)
            choice: dict[str, Any] = {"index": 0, "text": "", "token_ids": [token]}
            if i == 0:
                choice["prompt_token_ids"] = body["prompt"]  # a very long line, as vLLM sends it
            await send("{" if fault == "garble" and i == 1 else {"choices": [choice]})
            if fault == "drop" and i == 1:
                assert request.transport is not None
                request.transport.abort()
                return
            if fault == "stall" and i == 1:
                await asyncio.sleep(30)
        if fault != "no-usage":
            details = {"cached_tokens": cached}
            await send(
                {"choices": [], "usage": {"prompt_tokens": len(prompt), "prompt_tokens_details": details}}
            )
        await send("[DONE]")
        self._computed.add(np.concatenate((prompt, np.array(output[:-1], dtype=np.int32))))


@asynccontextmanager
async def serving(engine: FakeEngine) -> AsyncIterator[str]:
    """Runs it on a free loopback port; gives its address."""
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/completions", engine.completions)
    app.router.add_get("/metrics", engine.metrics)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()
