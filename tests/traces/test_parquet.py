from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from flashstate.traces.parquet import read_parquet
from flashstate.traces.parquet_writer import write_parquet
from flashstate.traces.session import Session, TraceError
from flashstate.traces.weka import read_weka
from tests.traces.made import SMALL, make_session, make_turns, sessions, shared_traces

TABLES = ("requests", "traces", "agents")


def rewrite(folder: Path, table: str, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Changes the rows of one table, whatever types they then have."""
    path = folder / f"{table}.parquet"
    rows = pq.read_table(path).to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows), path)


@given(sessions())
def test_what_is_written_is_read_again(session: Session) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_parquet([session, replace(session, name="t", primary=False)], Path(folder))
        assert list(read_parquet(Path(folder))) == [session, replace(session, name="t", primary=False)]


def test_a_session_may_span_batches(tmp_path: Path) -> None:
    long = make_session("long", [range(n % 7 + 1) for n in range(10_000)])
    assert write_parquet([make_session("a"), long, make_session("b")], tmp_path) == 3
    assert [(s.name, len(s.main.turns)) for s in read_parquet(tmp_path)] == [
        ("a", 2),
        ("long", 10_000),
        ("b", 2),
    ]


def test_ids_beyond_32_bits_are_made_small(tmp_path: Path) -> None:
    big = make_session("big", [(2**62, 2**40), (2**62, 7)])
    write_parquet([big], tmp_path)
    (read,) = read_parquet(tmp_path)
    assert [list(blocks) for blocks in read.main.prompts()] == [[1, 2], [1, 3]]


def test_unknown_links_are_none(tmp_path: Path) -> None:
    write_parquet([make_session()], tmp_path)
    (row,) = pq.read_table(tmp_path / "traces.parquet").to_pylist()
    assert (row["group"], row["primary"], row["dup_of"], row["split"]) == ("s", True, None, None)


def test_sessions_of_one_name_are_numbered(tmp_path: Path) -> None:
    write_parquet([make_session("a"), make_session("a#2"), make_session("a")], tmp_path)
    assert [session.name for session in read_parquet(tmp_path)] == ["a", "a#2", "a#3"]


def test_half_a_data_set_does_not_look_like_a_whole_one(tmp_path: Path) -> None:
    def broken() -> Iterator[Session]:
        yield make_session()
        raise TraceError("t.json", "", "ends early")

    with pytest.raises(TraceError, match="ends early"):
        write_parquet(broken(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_parquet([make_session()], tmp_path)
    with pytest.raises(TraceError, match=r"requests\.parquet: exists already"):
        write_parquet([make_session()], tmp_path)


def put(row: int, name: str, value: object) -> Callable[[list[dict[str, Any]]], object]:
    return lambda rows: rows[row].__setitem__(name, value)


def put_all(name: str, value: object) -> Callable[[list[dict[str, Any]]], object]:
    return lambda rows: [row.__setitem__(name, value) for row in rows]


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("requests", put(1, "input_tokens", -5), "small[1].input_tokens: must be 1 or more, not -5"),
        ("requests", put(1, "input_tokens", None), "small[1].input_tokens: must be a whole number, not null"),
        ("requests", put(1, "t", float("nan")), "small[1].t: must be a finite number, 0 or more, not nan"),
        ("requests", put(1, "shared_blocks", 9), "small[1].shared_blocks: is more than the previous request has"),
        ("requests", put(1, "new_hash_ids", [4, 5, 6]),
         "small[1].new_hash_ids: 6 ids in all, but 320 tokens have 5 full blocks"),
        ("requests", put(1, "new_hash_ids", [4, None]),
         "small[1].new_hash_ids: holds an id that is not from 0 to 1099511627776"),
        ("requests", put(1, "ref", 3), "small[1].ref: must be 0, the row of the agent's previous request"),
        ("requests", put(7, "agent", 5), "agents.parquet: small: has 3 of 4 agents"),
        ("requests", put_all("t", "noon"), "t: is a column of string, not of double"),
        ("traces", lambda rows: rows.clear(), "trace_id: is a column that is missing"),
        ("traces", put(0, "trace_id", "other"), "small: is missing"),
        ("traces", put(0, "block_size", 16), "small.block_size: must be 64 (tokens), not 16"),
        ("agents", lambda rows: rows.pop(), "small: has 2 of 3 agents"),
        ("agents", put(1, "agent_id", None), "small[1].agent_id: must be a name, not null"),
        ("agents", put(1, "t_start", -1.0), "small[1].t_start: must be a finite number, 0 or more, not -1.0"),
    ],
)  # fmt: skip
def test_a_broken_table_is_named_in_one_line(
    tmp_path: Path, table: str, change: Callable[[list[dict[str, Any]]], object], message: str
) -> None:
    write_parquet([read_weka(SMALL)], tmp_path)
    rewrite(tmp_path, table, change)
    with pytest.raises(TraceError) as caught:
        list(read_parquet(tmp_path))
    file = "" if message.startswith("agents.parquet: ") else f"{table}.parquet: "
    assert str(caught.value) == f"{tmp_path}/{file}{message}"


def test_a_broken_session_can_be_skipped(tmp_path: Path) -> None:
    write_parquet([make_session(name) for name in "abc"], tmp_path)
    rewrite(tmp_path, "requests", put(2, "output_tokens", -1))
    bad: list[TraceError] = []
    assert [session.name for session in read_parquet(tmp_path, bad.append)] == ["a", "c"]
    assert [error.field for error in bad] == ["b[0].output_tokens"]


def test_rows_of_a_session_must_stand_together(tmp_path: Path) -> None:
    write_parquet([make_session(name) for name in "ab"], tmp_path)
    rewrite(tmp_path, "requests", lambda rows: rows.append(rows.pop(1)))
    with pytest.raises(TraceError, match="a: has rows in two places"):
        list(read_parquet(tmp_path))


def test_what_is_no_parquet(tmp_path: Path) -> None:
    write_parquet([make_session()], tmp_path)
    (tmp_path / "agents.parquet").write_text("no")
    with pytest.raises(TraceError, match=r"agents\.parquet: not Parquet \("):
        list(read_parquet(tmp_path))
    (tmp_path / "agents.parquet").unlink()
    with pytest.raises(TraceError, match=r"agents\.parquet: No such file"):
        list(read_parquet(tmp_path))


def test_new_blocks_are_packed(tmp_path: Path) -> None:
    write_parquet([make_session()], tmp_path)
    (session,) = read_parquet(tmp_path)
    assert session.main.turns == make_turns([(1, 2), (1, 2, 3)])
    assert all(isinstance(turn.new_blocks, array) for turn in session.main.turns)


@pytest.mark.slow  # test_raw_samples_agree_with_the_tables reads them; sessions of all kinds are written above
def test_the_real_tables_are_read_and_written_again(tmp_path: Path) -> None:
    dev = shared_traces("dev")
    assert write_parquet(read_parquet(dev), tmp_path) == 495
    for table in TABLES:
        theirs, ours = (pq.read_table(folder / f"{table}.parquet") for folder in (dev, tmp_path))
        assert ours.schema.equals(theirs.schema)
        unequal = [n for n in theirs.column_names if theirs[n].to_pylist() != ours[n].to_pylist()]
        assert unequal == (["split", "source_blob", "source_bytes"] if table == "traces" else [])


def test_raw_samples_agree_with_the_tables() -> None:
    samples = [read_weka(path) for path in sorted(shared_traces("raw_samples").glob("*.json"))]
    dev = {session.name: session for session in read_parquet(shared_traces("dev"))}
    found = [session for session in samples if session.name in dev]
    assert len(found) == 6
    for session in found:
        read = dev[session.name]
        assert replace(read, group="", copy_of="", primary=True) == session
