from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashstate.replay.options import OptionError, Options, digest
from flashstate.traces.mooncake_writer import write_mooncake
from flashstate.traces.session import TraceError
from tests.traces.made import make_session


def make_options(**fields: Any) -> Options:
    return Options(**({"urls": ("http://a",), "sessions": 2, "traces": (Path("t.json"),)} | fields))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"urls": ()}, "--url: names no server"),
        ({"urls": ("localhost:8000",)}, "--url localhost:8000: must be like http://"),
        ({"traces": ()}, "name traces to replay, or a workload"),
        ({"workload": "math"}, "--workload math: reads no traces; leave out t.json"),
        (
            {"traces": (), "workload": "math", "measure_s": None},
            "--workload math: goes on for ever; say for how long",
        ),
        ({"traces": (), "workload": "agents", "turns": 3}, "--turns 3: must be from 4 to 1,000"),
        ({"sessions": 0}, "--sessions 0: must be from 1 to 10,000"),
        ({"measure_s": 0.0}, "--measure 0: must be above 0"),
        ({"token_scale": float("nan")}, "--token-scale nan: must be above 0"),
        ({"time_scale": float("inf")}, "--time-scale inf: must be above 0"),
        ({"warmup_s": -1.0}, "--warmup -1: must be 0 or more"),
        ({"max_failed": 101.0}, "--max-failed 101: must be from 0 to 100 percent"),
        ({"seed": -1}, "--seed -1: must be from 0 to 4294967295"),
        ({"token_ids": "5"}, "--token-ids 5: must be FIRST:END"),
        ({"token_ids": "5:104"}, "--token-ids 5:104: must be FIRST:END"),
        ({"token_ids": "0000009999:2048"}, "--token-ids 0000009999:2048: must be FIRST:END"),
        ({"gaps": "none"}, "--gaps none: choose one of think-only, original, api-scaled, corrected"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as error:
        make_options(**fields).check()
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_linked_recordings_and_single_requests_are_left_out(tmp_path: Path) -> None:
    sessions = [
        make_session("a"),
        make_session("b", prompts=[[1]]),
        replace(make_session("c"), primary=False),
    ]
    path = tmp_path / "t.jsonl"
    write_mooncake(sessions[:2], path)
    assert [len(s.main.turns) for s in make_options(traces=(path,)).read()] == [2]
    write_mooncake(sessions[1:2], tmp_path / "u.jsonl")
    with pytest.raises(TraceError, match="no session to replay"):
        make_options(traces=(tmp_path / "u.jsonl",)).read()


def test_a_digest_tells_traces_apart() -> None:
    session = make_session()
    assert digest([session]) == digest([make_session()])
    for other in (make_session("t"), make_session(gap_s=11.0), make_session(prompts=[[1, 2], [1, 5, 3]])):
        assert digest([session]) != digest([other])


def test_parameters_name_all_that_a_run_depends_on() -> None:
    base = make_options()
    for field, value in (
        ("sessions", 3), ("warmup_s", 1.0), ("measure_s", 1.0), ("gaps", "original"), ("api_time_scale", 2.0),
        ("token_scale", 2.0), ("time_scale", 2.0), ("seed", 1), ("chat", True), ("token_ids", "1:999"),
        ("stall_s", 1.0), ("max_failed", 1.0), ("workload", "math"), ("urls", ("http://b",)),
        ("traces", (Path("u.json"),)),
    ):  # fmt: skip
        assert make_options(**{field: value}).parameters((), "m") != base.parameters((), "m"), field


def test_agents_are_a_fixed_piece_of_work_that_no_scale_changes() -> None:
    agents = make_options(traces=(), workload="agents", turns=5, measure_s=None)
    agents.check()
    assert agents.read() == ()
    work = agents.make_workload(())
    assert (work.sessions, work.requests) == (2, 12)  # two agents of five turns, and a fork of two
    scaled = replace(agents, token_scale=10.0, time_scale=10.0).make_workload(())
    assert [list(scaled.plays(n)) for n in range(2)] == [list(work.plays(n)) for n in range(2)]
    assert replace(agents, token_scale=10.0, gaps="original").parameters((), "m") == agents.parameters(
        (), "m"
    )
    assert replace(agents, turns=6).parameters((), "m") != agents.parameters((), "m")
