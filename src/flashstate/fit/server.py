"""What a server says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import aiohttp

from flashstate.replay.client import CompletionClient, HttpError
from flashstate.urls import is_server, without_passwords

_ANSWER_S: Final = 30.0


class ServerError(Exception):
    """A server that cannot be measured. One line: which, why, the way out."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """`most_tokens` in a request, prompt and output; it and `version` are None if the server does not say."""

    url: str
    model: str
    most_tokens: int | None
    version: str | None


async def ask(client: CompletionClient, model: str | None) -> ServerInfo:
    """Asks for the models and the version. `model` None: the first one. Raises ServerError."""
    try:
        models = {found.name: found for found in await client.models()}
    except (aiohttp.ClientError, TimeoutError, HttpError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ServerError(
            f"--url {without_passwords(client.url)}: lists no models ({reason}): "
            "give the address of an OpenAI-compatible server"
        ) from None
    if not models:
        raise ServerError(f"--url {without_passwords(client.url)}: serves no model")
    name = next(iter(models)) if model is None else model
    if name not in models:
        raise ServerError(f"--model {name}: the server has {', '.join(models)}")
    return ServerInfo(client.url, name, models[name].most_tokens, await _version(client.url))


def check_address(url: str) -> None:
    """Raises ServerError for what is no address of a server."""
    if not is_server(url):
        raise ServerError(f"--url {url}: must be like http://localhost:8000")


async def _version(url: str) -> str | None:
    """As vLLM says it; others do not."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as http,
            http.get(f"{url}/version") as response,
        ):
            response.raise_for_status()
            return str((await response.json(content_type=None))["version"])
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError):
        return None
