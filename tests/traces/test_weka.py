from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from flashstate.traces.session import About, TraceError
from flashstate.traces.weka import read_weka, read_weka_lines
from tests.traces.made import SMALL, shared_traces


def write(folder: Path, document: object) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def document() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(SMALL.read_text())
    return content


def test_turns_have_gaps_from_end_to_start() -> None:
    main = read_weka(SMALL).main
    assert [turn.gap_s for turn in main.turns] == pytest.approx([0.0, 8.0, 17.0, 10.0, 0.0])
    assert [turn.time_s for turn in main.turns] == [0.0, 10.0, 30.0, 40.0, 41.0]


def test_missing_api_time_leaves_the_request_in_the_gap() -> None:
    # Turn 2 has no api_time and an implausible think_time of 25 s: the gap is the difference of `t`.
    assert read_weka(SMALL).main.turns[3].gap_s == pytest.approx(10.0)


def test_zero_outputs_stay() -> None:
    assert read_weka(SMALL).main.turns[2].output_tokens == 0


def test_a_completed_sub_agent_starts_its_duration_before_its_time() -> None:
    done = read_weka(SMALL).sub_agents[0]
    assert (done.name, done.spawn_turn) == ("agent_001", 1)
    assert done.turns[0].time_s == pytest.approx(13.5)
    assert done.turns[0].gap_s == pytest.approx(0.5)  # turn 1 ended at 13.0
    assert done.turns[1].gap_s == pytest.approx(3.0)


def test_a_launched_sub_agent_starts_at_its_time() -> None:
    launched = read_weka(SMALL).sub_agents[1]
    assert (launched.name, launched.spawn_turn) == ("agent_002", 2)
    assert launched.turns[0].time_s == pytest.approx(31.0)


def test_a_sub_agent_older_than_every_end_has_no_spawn_turn(tmp_path: Path, document: dict[str, Any]) -> None:
    document["requests"][2]["duration_ms"] = 1e6
    assert read_weka(write(tmp_path, document)).sub_agents[0].spawn_turn is None


def test_optional_fields_may_be_missing(tmp_path: Path, document: dict[str, Any]) -> None:
    for name in ("id", "block_size"):
        del document[name]
    del document["requests"][2]["agent_id"]
    session = read_weka(write(tmp_path, document))
    assert (session.name, session.sub_agents[0].name) == ("trace", "agent_001")


MISSING = object()


@pytest.mark.parametrize(
    ("where", "value", "field", "reason"),
    [
        (("requests",), MISSING, "requests", "is missing"),
        (("requests",), {}, "requests", "must be a list, not an object"),
        (("requests",), [], "requests", "holds no request of the main agent"),
        (("block_size",), 32, "block_size", "must be 64 (tokens), not 32"),
        (("id",), 7, "id", "must be a name, not the number 7"),
        (("requests", 0), "hello", "requests[0]", "must be an object, not a text"),
        (("requests", 0, "in"), MISSING, "requests[0].in", "is missing"),
        (("requests", 0, "in"), 0, "requests[0].in", "must be 1 or more, not 0"),
        (("requests", 0, "in"), 12.5, "requests[0].in", "must be a whole number, not the number 12.5"),
        (("requests", 0, "out"), -3, "requests[0].out", "must be 0 or more, not -3"),
        (("requests", 0, "out"), True, "requests[0].out", "must be a whole number, not true or false"),
        (("requests", 1, "t"), "noon", "requests[1].t", "must be a number, not a text"),
        (("requests", 1, "t"), float("nan"), "requests[1].t", "must be a finite number, 0 or more, not nan"),
        (("requests", 1, "api_time"), -1, "requests[1].api_time", "must be a finite number, 0 or more, not -1"),
        (("requests", 0, "hash_ids"), [1, 2], "requests[0].hash_ids", "has 2 ids, but 200 tokens have 3 full blocks"),
        (("requests", 0, "hash_ids", 1), None, "requests[0].hash_ids[1]", "must be a whole number, not null"),
        (("requests", 2, "requests"), [], "requests[2].requests", "holds no request"),
        (("requests", 2, "requests", 1, "in"), MISSING, "requests[2].requests[1].in", "is missing"),
        (("requests", 2, "agent_id"), "agent_002", "requests", "has two agents named 'agent_002'"),
    ],
)  # fmt: skip
def test_a_broken_record_is_named_in_one_line(
    tmp_path: Path,
    document: dict[str, Any],
    where: tuple[str | int, ...],
    value: object,
    field: str,
    reason: str,
) -> None:
    broken = copy.deepcopy(document)
    *parents, last = where
    at: Any = broken
    for step in parents:
        at = at[step]
    if value is MISSING:
        del at[last]
    else:
        at[last] = value
    path = write(tmp_path, broken)
    with pytest.raises(TraceError) as caught:
        read_weka(path)
    assert str(caught.value) == f"{path}: {field}: {reason}"


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '"x"', "\x00", "[" * 100_000])
def test_a_file_that_is_no_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        read_weka(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_weka(tmp_path / "none.json")


def test_real_traces() -> None:
    sessions = {path.stem: read_weka(path) for path in sorted(shared_traces("raw_samples").glob("*.json"))}
    turns = {name: len(session.main.turns) for name, session in sessions.items()}
    assert turns == {
        "trace_0091": 10, "trace_0274": 57, "trace_0291": 20, "trace_0326": 41, "trace_0504": 3, "trace_0707": 24,
    }  # fmt: skip
    spawned = {name: [a.spawn_turn for a in s.sub_agents] for name, s in sessions.items() if s.sub_agents}
    assert spawned == {"trace_0274": [0, 0, 0], "trace_0291": [15, 15]}
    assert sum(turn.output_tokens == 0 for turn in sessions["trace_0091"].main.turns) == 1
    for session in sessions.values():
        for agent in session.agents:
            assert all(turn.gap_s >= 0 for turn in agent.turns)
            assert all(turn.block_count == turn.prompt_tokens // 64 for turn in agent.turns)


def test_all_that_is_recorded_is_kept() -> None:
    session = read_weka(SMALL)
    turn = session.main.turns[0]
    assert (turn.api_s, turn.think_s, turn.ttft_s) == (2.0, 0.0, None)
    assert (turn.stop, turn.model, turn.streaming) == ("tool_use", "m", False)
    assert (turn.input_types, turn.output_types) == (("text",), ("text",))
    assert session.main.turns[2].api_s is None
    assert session.main.about == About(models=("m",), tool_tokens=10, system_tokens=10)
    assert session.sub_agents[0].about == About("Explore", "completed", 10_000.0, 700, 1, ("m",), 1, 1)


def test_prompts_are_kept_as_differences() -> None:
    main = read_weka(SMALL).main
    assert [turn.shared_blocks for turn in main.turns] == [0, 3, 5, 3, 4]
    assert [list(blocks) for blocks in main.prompts()] == [
        [1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6], [1, 2, 3, 7], [1, 2, 3, 7],
    ]  # fmt: skip


def test_what_says_little_is_read(tmp_path: Path) -> None:
    request = {"t": 0, "in": 70, "out": 1, "hash_ids": [9]}
    bare = {"requests": [request, request | {"t": 4, "api_time": None, "input_types": None}]}
    turns = read_weka(write(tmp_path, bare)).main.turns
    assert [(turn.time_s, turn.gap_s, turn.stop, turn.input_types) for turn in turns] == [
        (0.0, 0.0, "", ()), (4.0, 4.0, "", ()),
    ]  # fmt: skip


def test_a_sub_agent_long_after_every_request_has_no_spawn_turn(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    document["requests"][4]["t"] = 42.0 + 601.0
    late = read_weka(write(tmp_path, document)).sub_agents[1]
    assert (late.spawn_turn, late.turns[0].gap_s) == (None, 643.0)


def test_a_session_a_line(tmp_path: Path, document: dict[str, Any]) -> None:
    path = tmp_path / "traces.jsonl.gz"
    nameless = {key: value for key, value in document.items() if key != "id"}
    with gzip.open(path, "wt") as file:
        file.write(f"{json.dumps(document)}\n\n{json.dumps(nameless)}\n")
    assert [session.name for session in read_weka_lines(path)] == ["small", "traces:3"]


def test_a_broken_line_is_named_or_skipped(tmp_path: Path, document: dict[str, Any]) -> None:
    path = tmp_path / "traces.jsonl"
    broken = copy.deepcopy(document)
    broken["requests"][1]["in"] = "many"
    path.write_text("\n".join([json.dumps(document), json.dumps(broken), "{", json.dumps(document)]))
    bad: list[str] = []
    assert len(list(read_weka_lines(path, lambda error: bad.append(str(error))))) == 2
    assert bad[0] == f"{path}:2: requests[1].in: must be a whole number, not a text"
    assert bad[1].startswith(f"{path}:3: not JSON (")
    reader = read_weka_lines(path)
    assert next(reader).name == "small"
    with pytest.raises(TraceError, match=":2: "):
        next(reader)
