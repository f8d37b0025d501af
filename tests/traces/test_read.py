from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from flashstate.traces import files
from flashstate.traces.mooncake_writer import write_mooncake
from flashstate.traces.parquet_writer import write_parquet
from flashstate.traces.read import read_sessions
from flashstate.traces.session import TraceError
from flashstate.traces.weka import read_weka
from tests.traces.made import SMALL, make_session

ONE_LINE = json.dumps(json.loads(SMALL.read_text()))
ROW = '{"timestamp": 0, "input_length": 192, "output_length": 1, "hash_ids": [0, 1, 2]}'


def names(path: Path) -> list[str]:
    return [session.name for session in read_sessions(path)]


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("a.json", SMALL.read_text(), ["small"]),
        ("a.json", ONE_LINE, ["small"]),
        ("a.json", "\ufeff" + ONE_LINE, ["small"]),
        ("a.jsonl", ONE_LINE, ["small"]),
        ("a.json", f"{ONE_LINE}\n{ONE_LINE}\n", ["small", "small"]),
        ("a", ROW, ["a:1"]),
        ("a.jsonl", f"\n{ROW}\n{ROW}", ["a:2", "a:3"]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_the_format_is_recognised(
    tmp_path: Path, file: str, text: str, found: list[str], packed: bool
) -> None:
    path = tmp_path / (f"{file}.gz" if packed else file)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert names(path) == found


def test_a_folder_of_files(tmp_path: Path) -> None:
    for number in (2, 1):
        shutil.copy(SMALL, tmp_path / f"trace_{number}.json")
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(ROW.encode()))
    (tmp_path / "notes.txt").write_text("no trace")
    assert names(tmp_path) == ["small", "small", "x:1"]


def test_a_folder_of_tables(tmp_path: Path) -> None:
    write_parquet([make_session("one")], tmp_path)
    assert names(tmp_path) == ["one"]
    with pytest.raises(TraceError) as caught:
        names(tmp_path / "requests.parquet")
    assert str(caught.value) == f"{tmp_path}/requests.parquet: is one of three tables: name their folder"


def test_all_formats_tell_the_same(tmp_path: Path) -> None:
    session = read_weka(SMALL)
    write_parquet([session], tmp_path / "p")
    write_mooncake([session], tmp_path / "m.jsonl")
    (table,) = read_sessions(tmp_path / "p")
    assert (table.main, table.sub_agents) == (session.main, session.sub_agents)
    rows = list(read_sessions(tmp_path / "m.jsonl"))
    assert sorted(len(row.main.turns) for row in rows) == sorted(len(agent.turns) for agent in session.agents)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.jsonl", "none.jsonl: No such file or directory"),
        (
            "empty",
            "empty: holds no traces: neither requests.parquet nor *.json, *.jsonl, *.json.gz, *.jsonl.gz",
        ),
    ],
)
def test_there_is_nothing(tmp_path: Path, path: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError) as caught:
        names(tmp_path / path)
    assert str(caught.value) == f"{tmp_path}/{message}"


def test_a_broken_file_of_a_folder_can_be_skipped(tmp_path: Path) -> None:
    shutil.copy(SMALL, tmp_path / "b.json")
    (tmp_path / "a.json").write_text("[]")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(ROW.encode() * 100)[:-9])
    bad: list[str] = []
    assert [s.name for s in read_sessions(tmp_path, lambda error: bad.append(str(error)))] == ["small"]
    assert bad[0] == f"{tmp_path}/a.json: must be an object, not a list"
    assert bad[1].startswith(f"{tmp_path}/c.jsonl.gz: is broken gzip (")
    assert len(bad) == 2


def test_a_record_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST", 100)
    path = tmp_path / "a.jsonl"
    path.write_text(f"{ROW}\n{ROW[:-1]}{' ' * 100}}}\n")
    with pytest.raises(TraceError) as caught:
        names(path)
    assert str(caught.value) == f"{path}:2: is a line of more than 100 bytes"
    with pytest.raises(TraceError, match="is one record of more than 100 bytes: write one session a line"):
        read_weka(path)


def test_what_is_no_file_is_not_waited_for() -> None:
    with pytest.raises(TraceError, match="/dev/zero: is not a regular file"):
        names(Path("/dev/zero"))
