from __future__ import annotations

import asyncio

import pytest

from flashstate.replay.client import CompletionClient, Reply
from tests.replay.server import FakeEngine, serving


def ask(engine: FakeEngine, *prompts: list[int], output_tokens: int = 4, stall_s: float = 5.0) -> list[Reply]:
    async def run() -> list[Reply]:
        async with serving(engine) as url, CompletionClient(url, "tiny", stall_s) as client:
            return [await client.complete(prompt, output_tokens) for prompt in prompts]

    return asyncio.run(run())


def test_a_reply_has_tokens_times_and_cached_tokens() -> None:
    engine = FakeEngine(delay_s=0.02)
    first, second = ask(engine, [20, 21, 22], [20, 21, 22, 23])
    assert first.error is None
    assert len(first.tokens) == 4
    assert (first.cached_tokens, second.cached_tokens) == (0, 3)
    assert first.ttft_s is not None
    assert 0.02 <= first.ttft_s < first.e2e_s
    assert first.e2e_s >= 0.08


def test_what_is_asked() -> None:
    engine = FakeEngine()
    ask(engine, [20, 21])
    assert engine.bodies == [
        {
            "model": "tiny",
            "prompt": [20, 21],
            "max_tokens": 4,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
    ]


def test_every_request_has_its_own_connection() -> None:
    engine = FakeEngine()
    ask(engine, [20], [21], [22])
    assert len(engine.connections) == 3


def test_a_prompt_longer_than_any_line_limit_comes_back() -> None:
    (reply,) = ask(FakeEngine(), list(range(100_000)))
    assert reply.error is None


@pytest.mark.parametrize(
    ("fault", "error", "tokens"),
    [
        ("500", "http 500: the engine is not well", 0),
        ("refuse-stream", "http 503", 0),
        ("drop", "dropped", 2),
        ("stall", "stall: nothing for 0.3 s", 2),
        ("garble", "garbled", 1),
        ("short", "short: 3 of 4 tokens", 3),
        ("no-usage", "garbled: no usage in the stream", 4),
    ],
)
def test_a_fault_is_named_and_the_next_request_works(fault: str, error: str, tokens: int) -> None:
    engine = FakeEngine(fault=lambda number: fault if number == 0 else None)
    failed, fine = ask(engine, [20, 21], [30, 31], stall_s=0.3)
    assert failed.error is not None
    assert failed.error.startswith(error)
    assert "\n" not in failed.error
    assert len(failed.tokens) == tokens
    assert fine.error is None


def test_nobody_there() -> None:
    async def run() -> Reply:
        async with serving(FakeEngine()) as url:
            pass
        async with CompletionClient(url, "tiny") as client:
            return await client.complete([1, 2], 3)

    reply = asyncio.run(run())
    assert reply.error is not None
    assert reply.error.startswith("refused: ")
    assert (reply.tokens, reply.ttft_s) == ((), None)
