"""What a server is found to be before any load is put on it: what is wrong with it is said at once."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Final

import aiohttp

from flashstate.replay.chat_transcript import sample
from flashstate.replay.client import CompletionClient, HttpError, Model
from flashstate.replay.stream import Reply
from flashstate.urls import without_passwords

_ANSWER_S: Final = 15.0
"""A server that takes longer to list its models is not there."""
_SAMPLE_WORDS: Final = 400
_BAD_REQUEST: Final = ("http 400", "http 422")


class TargetError(Exception):
    """A server that cannot be used. One line: which (no password), why, the way out."""

    def __init__(self, message: str) -> None:
        super().__init__(without_passwords(" ".join(message.split())))


@dataclass(frozen=True)
class Target:
    """A server and what it can do. `tokens_per_word`: of `sample`'s words, 0 where not asked.

    `takes_salt`: whether it keeps prefixes with different `cache_salt` apart.
    """

    url: str
    model: Model
    takes_salt: bool
    says_cached: bool
    tokens_per_word: float = 0.0


async def find_model(url: str, wanted: str | None, way_out: str = "choose one with --model") -> Model:
    """The model to ask for: `wanted`, or the only one there is. Raises TargetError.

    `way_out`: what to do where there are several.
    """
    try:
        async with CompletionClient(url, "") as client, asyncio.timeout(_ANSWER_S):
            models = await client.models()
    except aiohttp.ClientConnectorError as error:
        raise TargetError(f"{url}: cannot be reached: {error.strerror or error}") from None
    except TimeoutError:
        raise TargetError(f"{url}: does not answer within {_ANSWER_S:g} s") from None
    except (aiohttp.ClientError, ConnectionError, HttpError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise TargetError(f"{url}/v1/models: is not an OpenAI-compatible server's: {reason}") from None
    names = ", ".join(model.name for model in models) or "nothing"
    for model in models:
        if model.name == wanted or (wanted is None and len(models) == 1):
            return model
    if wanted is None:
        raise TargetError(f"{url}: serves {names}: {way_out}")
    raise TargetError(f"{url}: does not serve {wanted!r}; it serves {names}")


def check_length(url: str, model: Model, most_tokens: int, scale: float | None) -> None:
    """Raises TargetError if the server would refuse the longest request. `scale`: None where no scale shortens it."""
    if model.most_tokens is not None and most_tokens > model.most_tokens:
        way_out = "give fewer --turns"
        if scale is not None:
            enough = math.ceil(scale * most_tokens / model.most_tokens * 1.02 * 10) / 10
            way_out = f"--token-scale {enough:g} makes them fit"
        raise TargetError(
            f"{url}: takes {model.most_tokens:,} tokens at most, the longest request has {most_tokens:,}: "
            f"{way_out}"
        )


async def probe(url: str, model: Model, ids: range, stall_s: float, *, chat: bool) -> Target:
    """Sends two small requests to see what the server can do. Raises TargetError."""
    async with CompletionClient(url, model.name, stall_s) as client:

        async def ask(cache_salt: str | None) -> Reply:
            if chat:
                return await client.chat(sample(_SAMPLE_WORDS), 1, cache_salt)
            return await client.complete([ids[0], ids[-1]], 1, cache_salt)

        # An empty salt is refused by a server that knows what a salt is, and ignored by one that does not.
        salted = await ask("")
        takes_salt = salted.error is not None and salted.error.startswith(_BAD_REQUEST)
        reply = await ask("probe" if takes_salt else None)
        if reply.error is not None:
            refuses_ids = reply.error.startswith(_BAD_REQUEST) and not chat
            known = await _known_ids(client, ids) if refuses_ids else ids
            raise TargetError(_complaint(url, reply, ids, known, chat=chat))
    rate = reply.prompt_tokens / _SAMPLE_WORDS if chat else 0.0
    if chat and rate <= 0:
        raise TargetError(f"{url}: does not count the tokens of a prompt, which --chat needs")
    return Target(url, model, takes_salt, reply.says_cached, rate)


async def _known_ids(client: CompletionClient, ids: range) -> range:
    """The leading part of `ids` that the server takes; all of them if there is none. About 15 requests of a token."""

    async def takes(token: int) -> bool:
        return (await client.complete([token, token], 1)).error is None

    if not await takes(ids[0]):
        return ids
    taken, refused = 0, len(ids)
    while refused - taken > 1:
        middle = (taken + refused) // 2
        if await takes(ids[middle]):
            taken = middle
        else:
            refused = middle
    return ids[:refused]


def _complaint(url: str, reply: Reply, ids: range, known: range, *, chat: bool) -> str:
    error = reply.error or ""
    if known != ids:
        return (
            f"{url}: does not know token ids from {known.stop:,} on; --token-ids {known.start}:{known.stop} "
            f"leaves them out: {error}"
        )
    if error.startswith(_BAD_REQUEST) and not chat:
        return f"{url}: refuses token ids {ids[0]} and {ids[-1]} (name others with --token-ids, or use --chat): {error}"
    if error.startswith("short") and not chat and not reply.tokens:
        return f"{url}: does not return token ids (`return_token_ids`): use --chat"
    return f"{url}: does not answer a first request: {error}"
