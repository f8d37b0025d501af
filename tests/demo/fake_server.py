"""Stands in for an engine's server process: answers like one, has a child of its own, and fails to order.

python -m tests.demo.fake_server PORT FAULT N     FAULT: none, die-at-once, die-after (N requests), never-up, deaf, sick
                                                  (its engine dies after N requests, and it goes on answering)
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

from aiohttp import web

from tests.replay.server import FakeEngine


async def main(port: int, fault: str, number: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", _STUBBORN])
    print(f"child {child.pid}", flush=True)
    if fault == "die-at-once":
        print("(Engine pid=1) ERROR [core.py:1] ValueError: no room for the model", flush=True)
        sys.exit(3)
    if fault == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if fault == "never-up":
        await asyncio.sleep(1000)

    async def completions(request: web.Request) -> web.StreamResponse:
        if fault == "die-after" and len(engine.bodies) >= number:
            print("Segmentation fault", flush=True)
            sys.stdout.flush()
            signal.raise_signal(signal.SIGKILL)
        return await engine.completions(request)

    async def health(request: web.Request) -> web.Response:
        return web.Response(status=503 if fault == "sick" and len(engine.bodies) >= number else 200)

    async def reset(request: web.Request) -> web.Response:
        print("cache emptied", flush=True)
        return web.Response()

    engine = FakeEngine(delay_s=0.001, models=("demo",))
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/completions", completions)
    app.router.add_get("/v1/models", engine.list_models)
    app.router.add_post("/reset_prefix_cache", reset)
    app.router.add_get("/metrics", engine.metrics)
    app.router.add_get("/health", health)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.sleep(1000)


_STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
"""A child that does not go when asked to, as an engine in the middle of a step may not."""

if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
