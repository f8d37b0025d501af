"""What becomes of a run when the server, or the disk, fails in the middle of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flashstate.replay.run_log import read_events
from tests.full_disk import full_after
from tests.replay.runs import ServerProcess, events, replay, wait_for


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "r.jsonl"


def replay_json(url: str, records: Path, *more: str) -> tuple[int, dict[str, Any]]:
    code, output, _ = replay(url, records, "--json", *more)
    return code, json.loads(output)


@contextmanager
def in_the_middle(records: Path, *actions: Any) -> Iterator[None]:
    """Does things one after another once requests have been answered."""

    def act() -> None:
        wait_for(records, 20)
        for action in actions:
            action()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def check_intact(records: Path, found: dict[str, Any]) -> None:
    """Every line is whole, the last one says how it ended, and all requests are there."""
    requests = events(records, "request")
    assert found["requests"]["measured"] + found["requests"]["outside"] == len(requests) > 0
    assert [event["event"] for event in read_events(records)][-1] == "closed"


def test_a_server_that_is_killed_ends_the_run_after_a_while(records: Path) -> None:
    with ServerProcess(delay_s=0.01) as server, in_the_middle(records, server.kill):
        code, found = replay_json(server.url, records, "--measure", "20", "--stall-timeout", "2")
        url = server.url
    assert (code, found["verdict"]) == (1, "invalid")
    assert f"of 20 s were measured: {url} answered nothing for 2 s, last: refused: " in found["reasons"][0]
    assert found["errors"].keys() | {"dropped"} == {"dropped", "refused"}
    assert found["errors"]["refused"] < 40  # nobody hammers at a closed door
    check_intact(records, found)


def test_a_server_that_is_started_again_is_noticed(records: Path) -> None:
    def pause() -> None:
        threading.Event().wait(1.0)

    with ServerProcess(delay_s=0.01) as server, in_the_middle(records, server.kill, pause, server.start):
        code, found = replay_json(server.url, records, "--measure", "8", "--stall-timeout", "6")
    assert (code, found["verdict"]) == (1, "invalid")
    assert "a server restarted 1 time during the run" in found["reasons"]
    assert found["requests"]["answered"] > 0
    assert found["measured_s"] == pytest.approx(8, abs=0.5)  # it went on
    check_intact(records, found)


@pytest.mark.parametrize(
    ("fault", "kind"), [("500", "http 500"), ("stall", "stall"), ("drop", "dropped"), ("short", "short")]
)
def test_failures_are_counted_by_kind_and_named(records: Path, fault: str, kind: str) -> None:
    with ServerProcess(fault, first=40, delay_s=0.001) as server:
        more = ("--measure", "15", "--stall-timeout", "1", "--token-scale", "5")
        code, found = replay_json(server.url, records, *more)
    assert (code, found["verdict"]) == (1, "invalid")
    assert found["errors"].keys() == {kind}
    assert "answered nothing for 1 s, last: " + kind in found["reasons"][0]
    assert any("of the measured requests failed, 5% may" in reason for reason in found["reasons"])
    check_intact(records, found)


def test_a_full_disk_stops_the_run_and_leaves_what_is_written(records: Path) -> None:
    size = 20_000
    with ServerProcess(delay_s=0.002) as server:
        with full_after(size):
            code, output, errors = replay(server.url, records, "--measure", "4")
        assert code == 1
        assert f"{records}: cannot be written: File too large" in output
        assert errors == ""
        assert size - 1000 < records.stat().st_size <= size
        written = [event for event in read_events(records) if event["event"] == "request"]
        assert len(written) > 20
        # With room again, it goes on where it was.
        code, found = replay_json(server.url, records, "--measure", "4", "--resume", str(records))
    assert (code, found["verdict"], found["parts"]) == (0, "valid", 2)
    check_intact(records, found)
