"""A headless Chromium, driven over the DevTools protocol: no driver, and nothing it could fetch."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0",
)  # fmt: skip
STARTS_WITHIN_S = 60


class Tab:
    """One page. Collects what the page logs, throws and asks the network for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []
        self.asked_for: list[str] = []

    async def listen(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                if event["id"] in self._answers:
                    self._answers.pop(event["id"]).set_result(event)
                continue
            self._take(event["method"], event["params"])

    def _take(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked_for.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded.set()

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        found = await asyncio.wait_for(answer, STARTS_WITHIN_S)
        assert "error" not in found, f"{method}: {found['error']}"
        result: dict[str, Any] = found["result"]
        return result

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression, a promise's once it is there."""
        found = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def open(self, page: Path, *, dark: bool, width: int, downloads: Path) -> None:
        """Shows a file with the network off, in light or dark, so many CSS pixels wide."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        await self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))
        self._loaded.clear()
        await self.call("Page.navigate", url=page.as_uri())
        await asyncio.wait_for(self._loaded.wait(), STARTS_WITHIN_S)


@asynccontextmanager
async def chromium(profile: Path) -> AsyncIterator[Tab]:
    """Starts a browser with a profile of its own in the folder, and ends it."""
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        port = await asyncio.wait_for(_port(profile, process), STARTS_WITHIN_S)
        async with aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/json/list") as response:
                pages = [target for target in await response.json() if target["type"] == "page"]
            async with http.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                listening = asyncio.create_task(tab.listen())
                try:
                    yield tab
                finally:
                    # Asked, it ends its helpers first: they would still write into the profile.
                    await socket.send_json({"id": 0, "method": "Browser.close"})
                    with suppress(TimeoutError):
                        await asyncio.wait_for(process.wait(), 10)
                    listening.cancel()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _port(profile: Path, process: asyncio.subprocess.Process) -> int:
    """Chromium writes down the port it chose."""
    told = profile / "DevToolsActivePort"
    while True:
        assert process.returncode is None, f"{CHROMIUM} ended with {process.returncode}"
        if told.exists() and (lines := told.read_text().splitlines()):
            return int(lines[0])
        await asyncio.sleep(0.05)
