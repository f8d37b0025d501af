from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from flashstate.bench import server as module
from flashstate.bench.error import BenchError
from flashstate.bench.server import HOST, Server, check_port, free_port, running
from tests.demo.processes import ROOT, alive, all_gone, children_in, fake_command, fake_environment

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def fake(tmp_path: Path, fault: str = "none") -> Server:
    port = free_port()
    return Server("fake", fake_command(port, fault), fake_environment(), port, tmp_path / "logs" / "fake.log")


@pytest.mark.parametrize("fault", ["none", "deaf"])
def test_nothing_is_left_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(module, "STOP_LIMIT_S", 0.5)
    server = fake(tmp_path, fault)

    async def go() -> int:
        async with running(server) as start_s:
            assert start_s > 0
            (child,) = children_in(server.log)
            assert alive(child)
            return child

    assert all_gone([asyncio.run(go())])


def test_nothing_is_left_when_the_work_is_interrupted(tmp_path: Path) -> None:
    server = fake(tmp_path)

    async def go() -> None:
        async with running(server):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(go())
    assert all_gone(children_in(server.log))


def test_nothing_is_left_when_the_start_is_interrupted(tmp_path: Path) -> None:
    server = fake(tmp_path, "never-up")

    async def go() -> None:
        starting = asyncio.create_task(server.start())
        while not children_in(server.log):
            await asyncio.sleep(0.02)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await server.stop()

    asyncio.run(go())
    assert all_gone(children_in(server.log))


def test_a_server_that_dies_at_once_says_why(tmp_path: Path) -> None:
    server = fake(tmp_path, "die-at-once")

    async def go() -> None:
        async with running(server):
            pytest.fail("it is not up")

    with pytest.raises(BenchError) as caught:
        asyncio.run(go())
    first, cause, *rest = str(caught.value).splitlines()
    assert first == "fake: the server died (exit code 3)"
    assert cause == "First error: ValueError: no room for the model"
    assert rest[0] == f"The end of {server.log}:"
    assert all_gone(children_in(server.log))


def test_a_server_that_is_never_up_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_LIMIT_S", 1.5)
    server = fake(tmp_path, "never-up")

    async def go() -> None:
        async with running(server):
            pytest.fail("it is not up")

    with pytest.raises(BenchError, match="not up after"):
        asyncio.run(go())
    assert all_gone(children_in(server.log))


def test_a_server_runs_on_the_cores_it_is_given(tmp_path: Path) -> None:
    server, core = fake(tmp_path), max(os.sched_getaffinity(0))

    async def go() -> None:
        async with running(server, frozenset([core])):
            (child,) = children_in(server.log)
            assert os.sched_getaffinity(child) == {core}

    asyncio.run(go())


def test_a_busy_port_is_refused_in_one_line() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(BenchError) as caught:
            check_port(port)
    assert str(caught.value).startswith(f"port {port} on 127.0.0.1: Address already in use; choose another")
    check_port(free_port())
