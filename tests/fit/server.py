"""A small server with a perfect prefix cache whose prefill takes as long as known coefficients say."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import web
from aiohttp.test_utils import TestServer

from flashstate.fit.regression import PrefillTime
from flashstate.replay.ideal import ComputedPrefixes

TIME = PrefillTime(d=3e-5, e=2e-3, request_s=0.005, resume_s=0.003, prompt_token_s=0.0)


@dataclass
class FakeServer:
    """`says_cached`: whether usage tells the cached tokens. `breaks_at`: a prompt of so many tokens is refused."""

    time: PrefillTime = TIME
    models: tuple[str, ...] = ("tiny",)
    most_tokens: int | None = 4097
    says_cached: bool = True
    breaks_at: int | None = None
    prompts: list[list[int]] = field(default_factory=list)
    _computed: ComputedPrefixes = field(default_factory=ComputedPrefixes)

    async def listing(self, request: web.Request) -> web.Response:
        limit = {} if self.most_tokens is None else {"max_model_len": self.most_tokens}
        return web.json_response({"data": [{"id": name} | limit for name in self.models]})

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "1.2.3"})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = np.array(body["prompt"], dtype=np.int32)
        self.prompts.append(body["prompt"])
        if self.breaks_at is not None and len(prompt) >= self.breaks_at:
            return web.json_response({"error": {"message": "out of\n room"}}, status=400)
        cached = min(self._computed.longest(prompt), len(prompt) - 1)
        (seconds,) = self.time.seconds(np.array([cached]), np.array([len(prompt)]))
        await asyncio.sleep(float(seconds))
        self._computed.add(prompt)
        usage: dict[str, Any] = {"prompt_tokens": len(prompt), "completion_tokens": 1}
        if self.says_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        events = [{"choices": [{"index": 0, "text": "", "token_ids": [20]}]}, {"choices": [], "usage": usage}]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in [*map(json.dumps, events), "[DONE]"]:
            await response.write(f"data: {event}\n\n".encode())
        return response


@contextmanager
def serving(fake: FakeServer) -> Iterator[str]:
    """Runs it on a free loopback port, in a thread: the command under test has this one. Gives its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(_start(fake), loop).result(10)
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _start(fake: FakeServer) -> TestServer:
    app = web.Application(client_max_size=2**26)
    app.router.add_get("/v1/models", fake.listing)
    app.router.add_get("/version", fake.version)
    app.router.add_post("/v1/completions", fake.completions)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    return server
