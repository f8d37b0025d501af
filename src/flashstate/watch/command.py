"""The command `flashstate watch`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Final

import aiohttp
import typer
from rich.console import Console, RenderableType
from rich.live import Live

from flashstate.console import fail
from flashstate.economics.options import PresetOption, PricesOption, chosen_prices
from flashstate.economics.serving import MOST_GPUS
from flashstate.watch.poll import TIMEOUT_S, base_url, fetch_all
from flashstate.watch.screen import Overlay, State, draw
from flashstate.watch.window import Away, Window

_MOST_SERVERS: Final = 3
"""As many as stand side by side in 80 columns."""

States = dict[str, State]


def watch(
    urls: Annotated[
        list[str], typer.Argument(metavar="URL", help="One to three vLLM servers: http://localhost:8000.")
    ],
    interval: Annotated[float, typer.Option(metavar="S", help="Seconds between two looks.")] = 2.0,
    window: Annotated[float, typer.Option(metavar="S", help="Seconds that rates are taken over.")] = 30.0,
    once: Annotated[
        bool, typer.Option("--once", help="Look twice, an interval apart, print that and exit.")
    ] = False,
    gpus: Annotated[int, typer.Option(metavar="N", help="GPUs of one server, for its profit.")] = 1,
    prices: PricesOption = None,
    preset: PresetOption = None,
) -> None:
    """Watch running servers side by side: throughput, hit rate, misses by reason, profit. Ctrl-C ends it.

    With --once the exit code is 1 if a server is away.
    """
    try:
        _check(urls, interval, window, gpus)
        servers = list(dict.fromkeys(map(base_url, urls)))
        overlay = Overlay(chosen_prices(prices, preset), gpus)
    except ValueError as error:
        fail(str(error))

    def shown(states: States) -> RenderableType:
        return draw(states, overlay, window, datetime.now().astimezone())

    try:
        if once:
            raise typer.Exit(asyncio.run(_look_once(servers, interval, window, shown)))
        asyncio.run(_keep_looking(servers, interval, window, shown))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _check(urls: list[str], interval: float, window: float, gpus: int) -> None:
    if len(urls) > _MOST_SERVERS:
        raise ValueError(
            f"{len(urls)} servers: {_MOST_SERVERS} at most; watch the others in another terminal"
        )
    if not 0.1 <= interval <= 3600:
        raise ValueError(f"--interval {interval:g}: must be from 0.1 to 3600 seconds")
    if not interval <= window <= 86_400:
        raise ValueError(f"--window {window:g}: must be from --interval, {interval:g}, to 86400 seconds")
    if not 1 <= gpus <= MOST_GPUS:
        raise ValueError(f"--gpus {gpus}: must be from 1 to {MOST_GPUS:,}, the GPUs of one server")


async def _look_once(
    servers: list[str], interval: float, window: float, shown: Callable[[States], RenderableType]
) -> int:
    """A rate needs two looks."""
    async with aclosing(_looks(servers, interval, window)) as looks:
        await anext(looks)
        states = await anext(looks)
    Console().print(shown(states))
    return int(any(isinstance(state, Away) for state in states.values()))


async def _keep_looking(
    servers: list[str], interval: float, window: float, shown: Callable[[States], RenderableType]
) -> None:
    """On a terminal the table stays in place; in a pipe one follows the other."""
    console = Console()
    async with aclosing(_looks(servers, interval, window)) as looks:
        if not console.is_terminal:
            async for states in looks:
                console.print(shown(states), "")
            return
        with Live(console=console, auto_refresh=False) as live:
            async for states in looks:
                live.update(shown(states), refresh=True)


async def _looks(servers: list[str], interval: float, window: float) -> AsyncGenerator[States]:
    """The state of all servers, every `interval` seconds, for ever."""
    windows = {url: Window(window) for url in servers}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    loop = asyncio.get_running_loop()
    # A connection each time: one that was kept would outlive the server behind it.
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        while True:
            began = loop.time()
            found = await fetch_all(session, servers)
            yield {
                url: sample if isinstance(sample, Away) else windows[url].add(sample)
                for url, sample in zip(servers, found, strict=True)
            }
            await asyncio.sleep(max(0.0, interval - (loop.time() - began)))
