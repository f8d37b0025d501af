from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from aiohttp import web

from flashstate.replay.client import Model
from flashstate.replay.preflight import Target, TargetError, check_length, find_model, probe
from tests.replay.server import FakeEngine, serving

T = TypeVar("T")


def against(engine: FakeEngine, what: Callable[[str], Awaitable[T]]) -> T:
    async def run() -> T:
        async with serving(engine) as url:
            return await what(url)

    return asyncio.run(run())


def find(engine: FakeEngine, wanted: str | None = None) -> Model:
    return against(engine, lambda url: find_model(url, wanted))


def look(engine: FakeEngine, ids: range = range(256, 20_000), *, chat: bool = False) -> Target:
    return against(engine, lambda url: probe(url, Model("tiny", None), ids, 5.0, chat=chat))


def test_the_only_model_is_taken_and_another_must_be_there() -> None:
    assert find(FakeEngine(most_tokens=99)) == Model("tiny", 99)
    assert find(FakeEngine(models=("a", "b")), "b").name == "b"
    with pytest.raises(TargetError, match=r"does not serve 'c'; it serves a, b$"):
        find(FakeEngine(models=("a", "b")), "c")
    with pytest.raises(TargetError, match="serves a, b: choose one with --model"):
        find(FakeEngine(models=("a", "b")))


def test_what_is_no_server_of_ours_is_said() -> None:
    async def other() -> None:
        app = web.Application()
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        try:
            await find_model(f"http://127.0.0.1:{port}", None)
        finally:
            await runner.cleanup()

    with pytest.raises(TargetError, match="is not an OpenAI-compatible server's: http 404"):
        asyncio.run(other())


def test_what_a_server_can_do_is_found_out() -> None:
    found = look(FakeEngine())
    assert (found.takes_salt, found.says_cached, found.tokens_per_word) == (True, True, 0.0)
    found = look(FakeEngine(knows_salt=False, says_cached=False))
    assert (found.takes_salt, found.says_cached) == (False, False)


def test_the_tokens_of_a_word_are_counted_for_chat() -> None:
    assert look(FakeEngine(), chat=True).tokens_per_word == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (FakeEngine(says_ids=False), "does not return token ids .*: use --chat"),
        (
            FakeEngine(vocabulary=2048),
            "does not know token ids from 2,048 on; --token-ids 256:2048 leaves them out: .*out of vocabulary",
        ),
        (FakeEngine(vocabulary=200), "refuses token ids 256 and 19999 .*--token-ids.*out of vocabulary"),
        (
            FakeEngine(fault=lambda _: "500"),
            "does not answer a first request: http 500: the engine is not well",
        ),
    ],
)
def test_what_is_missing_is_said_in_one_line(engine: FakeEngine, said: str) -> None:
    with pytest.raises(TargetError, match=said) as error:
        look(engine)
    assert "\n" not in str(error.value)


def test_requests_that_are_too_long_are_refused_with_a_scale_that_fits() -> None:
    check_length("u", Model("m", None), 10**9, 1.0)
    check_length("u", Model("m", 1000), 1000, 1.0)
    with pytest.raises(TargetError, match=r"longest request has 2,001: --token-scale 4\.1 makes them fit"):
        check_length("u", Model("m", 1000), 2001, 2.0)
    with pytest.raises(TargetError, match="longest request has 2,001: give fewer --turns"):
        check_length("u", Model("m", 1000), 2001, None)
