from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from flashstate.replay.record import Record
from flashstate.report.runs.read import labelled, read_runs
from flashstate.report.runs.request import Run
from flashstate.report.simulation import ReportError
from tests.report.records import make_aiperf, make_bench, make_record, make_records, write_lines


def read_one(path: Path) -> Run:
    found = read_runs(path, "engine")
    assert found is not None and len(found) == 1
    return found[0]


def test_what_the_replay_writes_is_read_back(tmp_path: Path) -> None:
    written = Record(
        "play/agent-1", 3, "edit", 1000, 600, 800, 120, 1.0, 3.0, 10.0, 13.0, "stall: nothing for 5 s"
    )
    (request,) = read_one(write_lines(tmp_path / "r.jsonl", [asdict(written)])).requests
    assert (request.session, request.agent, request.turn, request.kind) == ("play", "agent-1", 3, "edit")
    assert (request.start_s, request.first_s, request.end_s) == (10.0, 11.0, 13.0)
    assert (request.prompt_tokens, request.cached_tokens, request.output_tokens) == (1000, 600, 120)
    assert request.recomputed_tokens == written.recomputed_tokens == 200
    assert (request.error, request.error_kind) == ("stall: nothing for 5 s", "stall")


def test_unknown_fields_and_damaged_lines_do_not_matter(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"kind": "a head", "sessions": 2},
        *make_records(2, 2),
        make_record(turn=9) | {"start_s": "late"},
    ]
    rows.append(
        make_record(turn=8, start_s=30.0, url="http://a:1", agent="sub", missed_tokens={"capacity": 200})
    )
    run = read_one(write_lines(tmp_path / "r.jsonl", rows, '{"session": "s0", "tu'))
    assert len(run.requests) == 5
    assert run.left_out == 3
    assert run.requests[-1].agent == "sub"
    assert run.missed("capacity") == 200
    assert run.missed("placement") == 0


def make_log(**head: Any) -> list[Any]:
    """A run that was killed in its first part and resumed; each part is measured from its second second."""
    parts: list[Any] = [
        {"kind": "flashstate replay", "format": 1, "parameters": {"chat": False, "sessions": 3} | head}
    ]
    for part in range(2):
        parts += [
            {"event": "started", "part": part, "at": "2026-11-30"},
            make_record(turn=0, measured=False, event="request", part=part, play=1, says_cached=True),
            {"event": "opened", "part": part, "s": 2.0},
            make_record(turn=1, start_s=4.0, measured=True, event="request", part=part, says_cached=True),
            {"event": "play", "part": part, "session": "s0", "play": 1},
        ]
    closed = {
        "stopped": "interrupted",
        "restarts": 0,
        "missed_tokens": {"placement": 0, "capacity": 70, "dependency": 5},
    }
    return [*parts, {"event": "closed", "part": 1, "s": 10.0} | closed]


def test_the_parts_of_a_resumed_run_follow_each_other(tmp_path: Path) -> None:
    run = read_one(write_lines(tmp_path / "r.jsonl", make_log()))
    assert [request.start_s for request in run.requests] == [0.0, 4.0, 7.0, 11.0]
    assert [request.measured for request in run.requests] == [False, True, False, True]
    assert [request.session for request in run.requests] == ["s0 #1", "s0", "s0 #1", "s0"]
    assert (run.opened_s, run.measured_s, run.left_out) == (2.0, 5.0 + 8.0, 0)
    assert (run.concurrent_sessions, run.stopped) == (3, "interrupted")
    assert (run.missed("capacity"), run.missed("dependency"), run.missed("placement")) == (70, 5, 0)


def test_what_a_chat_repeats_and_a_silent_server_caches_is_not_known(tmp_path: Path) -> None:
    run = read_one(write_lines(tmp_path / "r.jsonl", make_log(chat=True)))
    assert {request.ideal_tokens for request in run.requests} == {None}
    run = read_one(write_lines(tmp_path / "s.jsonl", [make_record(says_cached=False, cached_tokens=0)]))
    assert run.requests[0].cached_tokens is None


def test_aiperf(tmp_path: Path) -> None:
    failed = make_aiperf(2) | {
        "metrics": None,
        "error": {"code": 499, "type": "Cancelled", "message": "late"},
    }
    run = read_one(write_lines(tmp_path / "p.jsonl", [make_aiperf(1), make_aiperf(0), failed]))
    first, second, third = run.requests
    assert (first.turn, first.start_s, second.start_s) == (0, 0.0, pytest.approx(10.0))
    assert first.first_s == pytest.approx(0.25)
    assert first.end_s == pytest.approx(2.0)
    assert (first.session, first.prompt_tokens, first.cached_tokens, first.output_tokens) == (
        "32ee",
        1000,
        700,
        50,
    )
    assert first.ideal_tokens is None
    assert (third.error_kind, third.end_s) == ("Cancelled", pytest.approx(22.0))


def test_aiperf_counts_prompt_tokens_as_the_server_does_and_leaves_the_warm_up_out(tmp_path: Path) -> None:
    warm = make_aiperf(0)
    warm["metadata"]["benchmark_phase"] = "warmup"
    counted = make_aiperf(1, usage_prompt_tokens={"value": 1010, "unit": "tokens"})
    run = read_one(write_lines(tmp_path / "p.jsonl", [warm, counted]))
    assert [request.prompt_tokens for request in run.measured] == [1010]
    assert len(run.requests) == 2


def test_a_unit_that_nobody_knows_is_no_time(tmp_path: Path) -> None:
    row = make_aiperf(0, time_to_first_token={"value": 1, "unit": "fortnights"})
    with pytest.raises(ReportError, match="unit is 'fortnights': must be one of s, sec, ms"):
        read_runs(write_lines(tmp_path / "p.jsonl", [row]), "x")


@pytest.mark.parametrize("indent", [None, 2])
def test_vllm_bench(tmp_path: Path, indent: int | None) -> None:
    result = make_bench(4, errors=["", "", "Traceback\n  KeyError: 'x'", ""])
    path = tmp_path / "b.json"
    path.write_text(json.dumps(result, indent=indent))
    run = read_one(path)
    assert [request.start_s for request in run.requests] == [0.0, 1.0, 2.0, 3.0]
    assert run.requests[0].first_s == 0.5
    assert run.requests[0].end_s == pytest.approx(1.5)
    assert run.requests[2].error == "failed: Traceback KeyError: 'x'"
    assert len(run.answered) == 3
    assert run.concurrent_sessions is None


def test_several_results_in_one_file_are_several_runs(tmp_path: Path) -> None:
    found = read_runs(write_lines(tmp_path / "b.json", [make_bench(2), make_bench(3)]), "x")
    assert found is not None
    assert [len(run.requests) for run in found] == [2, 3]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([make_bench(start_times=None)], "has no start_times: run `vllm bench serve` with --save-detailed"),
        ([make_bench(ttfts=[0.5])], "has lists of different lengths"),
        ([make_bench(0)], "holds no requests"),
        (
            [make_record(prompt_tokens=-1)],
            "holds no request that can be used; the last line: prompt_tokens is -1",
        ),
        ([make_record(end_s=float("nan"))], "end_s is nan: must be from 0 to"),
        ([make_record(turn=True)], "turn is True: must be a number"),
    ],
)
def test_files_of_which_nothing_can_be_used(rows: list[Any], reason: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", rows)
    with pytest.raises(ReportError) as caught:
        read_runs(path, "x")
    assert str(caught.value).startswith(f"{path}: ") and reason in str(caught.value)


def test_other_files_are_left_to_others(tmp_path: Path) -> None:
    for content in ("", "{", '{"kind": "flashstate simulate"}', "[1, 2]", "[" * 100_000):
        (tmp_path / "x").write_text(content)
        assert read_runs(tmp_path / "x", "x") is None


def test_labels(tmp_path: Path) -> None:
    odd = tmp_path / "a=b.jsonl"
    odd.write_text("")
    a, b = tmp_path / "one" / "profile_export.jsonl", tmp_path / "two" / "profile_export.jsonl"
    found = labelled([str(odd), f"stock vLLM={a}", str(a), str(b), f"={b}"])
    assert found[:4] == [
        ("a=b", odd),
        ("stock vLLM", a),
        ("one/profile_export", a),
        ("two/profile_export", b),
    ]
