"""`flashstate replay` as a user runs it, against a server process."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flashstate.cli import app
from tests.replay.runs import ServerProcess, events, free_port, replay, start, wait_for


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "r.jsonl"


def replay_json(url: str, records: Path, *more: str, **given: Any) -> tuple[int, dict[str, Any]]:
    code, output, _ = replay(url, records, "--json", *more, **given)
    return code, json.loads(output)


def test_a_run_is_measured_and_valid(records: Path) -> None:
    with ServerProcess(delay_s=0.002) as server:
        code, found = replay_json(server.url, records)
    assert (code, found["verdict"], found["reasons"]) == (0, "valid", [])
    assert found["measured_s"] == pytest.approx(1.5, abs=0.3)
    assert 0 < found["hit_rate"] == found["ideal_hit_rate"]  # the fake's cache is perfect
    requests = events(records, "request")
    measured = [event for event in requests if event["measured"]]
    assert found["requests"]["answered"] == len(measured) > 0
    assert found["requests"]["outside"] == len(requests) - len(measured) > 0
    assert found["prompt_tokens"] == sum(event["prompt_tokens"] for event in measured)
    assert {event["session"].partition("/")[2] for event in requests} == {"", "agent_001", "agent_002"}
    # What the server counted, read before and after: about ten a request.
    assert found["missed_tokens"]["placement"] == pytest.approx(10 * len(measured), rel=0.2)


def test_the_table_has_the_figures_and_the_verdict(records: Path) -> None:
    with ServerProcess() as server:
        code, output, _ = replay(server.url, records)
    assert code == 0
    for wanted in (
        "prompt tokens a second",
        "hit rate, as the server says",
        "TTFT p50 / p90",
        "verdict: valid",
    ):
        assert wanted in output


@pytest.mark.parametrize(("fault", "chance"), [("none", 0), ("no-salt", 2)])
def test_every_play_is_salted_and_a_second_run_hits_nothing_of_the_first(
    tmp_path: Path, fault: str, chance: int
) -> None:
    with ServerProcess(fault, delay_s=0.002) as server:
        first = [replay(server.url, tmp_path / name)[0] for name in ("a.jsonl", "b.jsonl")]
    assert first == [0, 0]
    for name in ("a.jsonl", "b.jsonl"):
        for event in events(tmp_path / name, "request"):
            assert 0 <= event["cached_tokens"] - event["ideal_tokens"] <= chance


def test_sessions_take_servers_in_turn_and_stay(records: Path) -> None:
    with ServerProcess() as one, ServerProcess() as two:
        code, _, _ = replay(f"{one.url},{two.url}/v1", records)
        urls = [one.url, two.url]
    assert code == 0
    places = {(event["play"] % 2, event["server"]) for event in events(records, "request")}
    assert places == {(0, urls[0]), (1, urls[1])}


def test_chat_holds_what_the_server_said(records: Path) -> None:
    with ServerProcess(delay_s=0.002) as server:
        code, found = replay_json(server.url, records, "--chat", "--token-scale", "5")
    assert (code, found["verdict"]) == (0, "valid")
    assert found["hit_rate"] > 0.3
    assert found["ideal_hit_rate"] is None
    requests = events(records, "request")
    ends = {(e["session"], e["turn"]): e["prompt_tokens"] + e["output_tokens"] for e in requests}
    extends = [event for event in requests if event["kind"] == "extends"]
    assert extends
    # All of the last prompt and answer: the role before the answer is a token, its last word was not consumed.
    assert all(event["cached_tokens"] == ends[event["session"], event["turn"] - 1] for event in extends)


@pytest.mark.parametrize(("workload", "scale"), [("math", "300"), ("edits", "100")])
def test_made_up_work(records: Path, workload: str, scale: str) -> None:
    with ServerProcess() as server:
        code, found = replay_json(
            server.url, records, "--workload", workload, "--token-scale", scale, trace=None
        )
    assert (code, found["verdict"]) == (0, "valid")


def test_a_wrong_model_name_stops_at_once_with_one_line(records: Path) -> None:
    with ServerProcess() as server:
        code, output, errors = replay(server.url, records, "--model", "large")
    assert (code, output) == (1, "")
    assert errors == f"flashstate: {server.url}: does not serve 'large'; it serves tiny\n"
    assert not records.exists()


def test_nobody_there_stops_at_once_with_one_line(records: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    code, output, errors = replay(url, records)
    assert (code, output) == (1, "")
    assert errors.startswith(f"flashstate: {url}: cannot be reached: ")
    assert errors.count("\n") == 1
    assert not records.exists()


def test_options_and_files_that_make_no_sense_are_one_line(records: Path, tmp_path: Path) -> None:
    assert replay("http://a", records, "--measure", "0")[2] == "flashstate: --measure 0: must be above 0\n"
    missing = tmp_path / "none.json"
    code, _, errors = replay("http://a", records, trace=missing)
    assert code == 1
    assert str(missing) in errors
    assert errors.count("\n") == 1


def test_ctrl_c_keeps_all_and_a_resumed_run_does_not_repeat_what_is_done(records: Path) -> None:
    long = ("--measure", "6", "--json")
    with ServerProcess(delay_s=0.002) as server:
        running = start(server.url, records, *long)
        wait_for(records, 150)
        running.send_signal(signal.SIGINT)
        output, errors = running.communicate(timeout=30)
        found = json.loads(output)
        assert running.returncode == 130, errors
        assert errors == ""
        assert found["verdict"] == "invalid"
        assert found["reasons"][0].endswith("of 6 s were measured: interrupted")
        before = events(records, "request")
        assert found["requests"]["measured"] + found["requests"]["outside"] == len(before) >= 150
        code, resumed = replay_json(server.url, records, "--measure", "6", "--resume", str(records))
    assert (code, resumed["verdict"], resumed["parts"]) == (0, "valid", 2)
    assert resumed["measured_s"] == pytest.approx(6, abs=0.5)
    done = {event["play"] for event in events(records, "play") if event["part"] == 0}
    again = {event["play"] for event in events(records, "request") if event["part"] == 1}
    assert done
    assert not done & again
    # What was begun and not finished begins again, with a salt of its own: nothing of it is in the cache.
    assert all(e["cached_tokens"] == e["ideal_tokens"] for e in events(records, "request"))
    with ServerProcess() as other:
        code, _, errors = replay(other.url, records, "--measure", "6", "--resume", str(records))
        assert (code, "was made with other parameters: urls" in errors, errors.count("\n")) == (1, True, 1)


def test_a_run_that_is_complete_is_not_run_again(records: Path) -> None:
    with ServerProcess() as server:
        _, found = replay_json(server.url, records)
        size = records.stat().st_size
        code, again = replay_json(server.url, records, "--resume", str(records))
    assert code == 0
    assert again == found
    assert records.stat().st_size == size


def test_agents_are_measured_to_their_end_in_one_go(records: Path) -> None:
    with ServerProcess() as server:
        command = ["replay", "--workload", "agents", "--turns", "4", "--sessions", "1", "--url", server.url]
        done = CliRunner().invoke(app, [*command, "--records", str(records), "--json"])
        assert done.exit_code == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["verdict"], found["requests"]["answered"], found["requests"]["outside"]) == (
            "valid", len(events(records, "request")), 0
        )  # fmt: skip
        size = records.stat().st_size
        again = CliRunner().invoke(app, [*command, "--resume", str(records)])
        assert (again.exit_code, again.stderr.count("\n")) == (1, 1)
        assert "--workload agents is measured in one go" in again.stderr
        assert records.stat().st_size == size
