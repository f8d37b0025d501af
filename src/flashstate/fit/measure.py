"""Times prefills on a server, one request at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flashstate.fit.plan import Chain
from flashstate.replay.client import CompletionClient

IDS: Final = range(256, 1024)
"""Token ids of the prompts: every vocabulary has them, and in most they are no special tokens."""


class MeasureError(Exception):
    """A request failed. One line: which, how, the way out."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """One measured prefill of tokens [start, stop). `start`: what the server says it had cached, in tokens.

    `seconds`: from sending the request to its first token.
    """

    start: int
    stop: int
    seconds: float
    held_out: bool


async def measure(
    client: CompletionClient,
    chains: Sequence[Chain],
    rounds: int,
    random: np.random.Generator,
    on_request: Callable[[], None] = lambda: None,
) -> list[Prefill]:
    """Measures every chain once a round, in an order of its own, so that no length has all of a bad moment.

    Every chain begins with a prompt that the server cannot have seen: `random` makes it, so seed it afresh. Not
    kept are the first requests, which find the server cold, and warm starts on a server that does not say what it
    had cached. Raises MeasureError for the first failed request.
    """
    await _warm_up(client, chains, random, on_request)
    found: list[Prefill | None] = []
    for _ in range(rounds):
        for number in random.permutation(len(chains)):
            chain = chains[number]
            prompt = _prompt(chain, random)
            for stop in (chain.first, chain.then):
                if stop is not None:
                    found.append(
                        await _prefill(client, prompt[:stop], chain.held_out, is_new=stop == chain.first)
                    )
                    on_request()
    return [prefill for prefill in found if prefill is not None]


def requests(chains: Sequence[Chain], rounds: int) -> int:
    """How often `measure` calls `on_request`."""
    return rounds * sum(1 if chain.then is None else 2 for chain in chains) + len(_WARM_UP)


_WARM_UP: Final = (-1, 0, -1)
"""The longest chain, the shortest, the longest."""


async def _warm_up(
    client: CompletionClient,
    chains: Sequence[Chain],
    random: np.random.Generator,
    on_request: Callable[[], None],
) -> None:
    by_length = sorted(chains, key=lambda chain: chain.first)
    for number in _WARM_UP:
        chain = by_length[number]
        await _prefill(client, _prompt(chain, random)[: chain.first], chain.held_out, is_new=True)
        on_request()


def _prompt(chain: Chain, random: np.random.Generator) -> NDArray[np.int64]:
    return random.integers(IDS.start, IDS.stop, chain.then or chain.first)


async def _prefill(
    client: CompletionClient, prompt: NDArray[np.int64], held_out: bool, *, is_new: bool
) -> Prefill | None:
    """None for a prompt that may have been cached by who knows how much. Of a new one nothing can have been."""
    reply = await client.complete(prompt.tolist(), 1)
    if reply.error is not None or reply.ttft_s is None:
        raise MeasureError(
            f"a prompt of {len(prompt)} tokens failed ({reply.error}): "
            "look into the server's log, or measure shorter prompts with --longest"
        )
    if not (is_new or reply.says_cached):
        return None
    return Prefill(reply.cached_tokens, len(prompt), reply.ttft_s, held_out)
