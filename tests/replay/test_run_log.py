from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from flashstate.replay.run_log import LogError, RunLog, read_events, read_head

PARAMETERS: dict[str, Any] = {"sessions": 4, "urls": ["http://a"], "model": "m"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "r.jsonl"


def make_log(path: Path, events: int = 3) -> None:
    with RunLog.create(path, {"run": "1", "parameters": PARAMETERS}) as log:
        for number in range(events):
            log.append({"event": "play", "play": number})


def plays(path: Path) -> list[int]:
    return [event["play"] for event in read_events(path)]


def test_what_is_written_is_read_back_at_once(path: Path) -> None:
    with RunLog.create(path, {"run": "1", "parameters": PARAMETERS}) as log:
        log.append({"event": "play", "play": 7})
        assert plays(path) == [7]  # nothing waits in a buffer
    assert read_head(path)["parameters"] == PARAMETERS


def test_a_file_that_is_there_is_never_written_over(path: Path) -> None:
    make_log(path)
    with pytest.raises(LogError, match="exists: name another file with --records, or go on with --resume"):
        make_log(path)
    assert plays(path) == [0, 1, 2]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_cut_short_is_dropped_and_a_resumed_run_goes_on_after_the_last_whole_one(
    path: Path, cut: int
) -> None:
    make_log(path)
    os.truncate(path, path.stat().st_size - cut)
    assert plays(path) == [0, 1]
    with RunLog.resume(path, PARAMETERS) as log:
        log.append({"event": "play", "play": 9})
    assert plays(path) == [0, 1, 9]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_other_parameters_are_refused_and_named(path: Path) -> None:
    make_log(path)
    other = PARAMETERS | {"sessions": 5, "model": "n"}
    with pytest.raises(LogError) as error:
        RunLog.resume(path, other)
    assert str(error.value).endswith(
        "was made with other parameters: sessions 4 there, 5 here; model 'm' there, 'n' here"
    )


def test_two_runs_cannot_write_to_one_file(path: Path) -> None:
    make_log(path)
    with (
        RunLog.resume(path, PARAMETERS),
        pytest.raises(LogError, match="another run is writing to it"),
    ):
        RunLog.resume(path, PARAMETERS)
    with RunLog.resume(path, PARAMETERS):
        pass


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no records"),
        ("[1]\n", "line 1: is not a JSON object"),
        ("{}\n", "holds no records"),
        ('{"kind": "flashstate replay", "format": 9, "parameters": {}}\n', "is of format 9; this version"),
        ('{"kind": "flashstate replay", "format": 1, "parameters": {}', "holds no records"),  # cut short
    ],
)
def test_what_is_not_ours_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    with pytest.raises(LogError, match=said):
        RunLog.resume(path, PARAMETERS)
    assert path.read_text() == text


@pytest.mark.parametrize("line", ["nonsense", '{"other": 1}', "3"])
def test_a_broken_line_inside_is_named(path: Path, line: str) -> None:
    make_log(path)
    path.write_text(path.read_text() + line + "\n" + '{"event": "play", "play": 3}\n')
    with pytest.raises(LogError, match="line 5: is not"):
        list(read_events(path))
