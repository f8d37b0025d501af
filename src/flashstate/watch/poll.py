"""Fetches /metrics pages."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

import aiohttp

from flashstate.urls import is_server
from flashstate.watch.sample import MetricsError, Sample, read_sample
from flashstate.watch.window import Away

TIMEOUT_S: Final = 5.0
_MOST_BYTES: Final = 32 * 2**20
"""Far above any server's page."""


class UrlError(ValueError):
    """An address that is none. One line."""


def base_url(given: str) -> str:
    """The server's address as it is asked: http unless said otherwise, /metrics or not. Raises UrlError."""
    full = given if "://" in given else f"http://{given}"
    if not is_server(full):
        raise UrlError(f"{given}: not a server's address: give one such as http://localhost:8000")
    return full.rstrip("/").removesuffix("/metrics").rstrip("/")


async def fetch(session: aiohttp.ClientSession, url: str) -> Sample | Away:
    """One sample, or why there is none. Never raises for a server that misbehaves."""
    try:
        async with session.get(f"{url}/metrics") as response:
            if response.status != 200:
                return Away(f"HTTP {response.status} from /metrics")
            page = await response.content.read(_MOST_BYTES)
            while chunk := await response.content.read(_MOST_BYTES - len(page)):
                page += chunk
        return read_sample(page.decode("utf-8", "replace"), time.monotonic())
    except TimeoutError:
        return Away(f"no answer for {TIMEOUT_S:g} s")
    except aiohttp.ClientConnectorError as error:
        return Away(f"no connection: {_why(error)}")
    except (aiohttp.ClientError, OSError) as error:
        return Away(f"broken off: {type(error).__name__}")
    except MetricsError as error:
        return Away(str(error))


def _why(error: aiohttp.ClientConnectorError) -> str:
    # Of a name that cannot be resolved the number is negative, and no error of the system's.
    number = error.errno or 0
    return os.strerror(number) if number > 0 else str(error.strerror or "the name is not known")


async def fetch_all(session: aiohttp.ClientSession, urls: list[str]) -> list[Sample | Away]:
    """All servers at once, so that one that is slow makes none of the others late."""
    return await asyncio.gather(*(fetch(session, url) for url in urls))
