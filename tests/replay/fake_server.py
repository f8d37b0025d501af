"""The fake engine as a server process of its own, which can be killed.

python -m tests.replay.fake_server PORT FAULT FIRST DELAY     FAULT comes with every request from number FIRST on;
                                                              none and no-salt are none
"""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web

from tests.replay.server import FakeEngine


async def main(port: int, fault: str, first: int, delay_s: float) -> None:
    faults = fault not in ("none", "no-salt")
    engine = FakeEngine(
        fault=lambda number: fault if faults and number >= first else None,
        delay_s=delay_s,
        keeps_bodies=False,
        knows_salt=fault != "no-salt",
    )
    runner = web.AppRunner(engine.app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
    print("up", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
