from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from flashstate.traces.mooncake import read_mooncake
from flashstate.traces.mooncake_writer import write_mooncake
from flashstate.traces.session import Session, TraceError
from flashstate.traces.weka import read_weka
from tests.traces.made import SMALL, make_session, sessions


def row(ids: list[int], tokens: int | None = None, **fields: object) -> dict[str, Any]:
    """A row of 64-token blocks."""
    return {"input_length": tokens or 64 * len(ids), "output_length": 5, "hash_ids": ids, **fields}


def write(folder: Path, *rows: object) -> Path:
    path = folder / "m.jsonl"
    path.write_text("".join(f"{entry if isinstance(entry, str) else json.dumps(entry)}\n" for entry in rows))
    return path


def prompts(session: Session) -> list[list[int]]:
    return [list(blocks) for blocks in session.main.prompts()]


def test_the_public_traces(tmp_path: Path) -> None:
    # As in the published files: 512 tokens an id, the last one for a part of a block.
    path = write(
        tmp_path,
        {"timestamp": 0, "input_length": 6755, "output_length": 500, "hash_ids": list(range(14))},
        {"timestamp": 3052, "input_length": 2287, "output_length": 316, "hash_ids": [0, 42, 43, 44, 45]},
    )
    first, second = read_mooncake(path)
    assert (first.name, second.name) == ("m:1", "m:2")
    assert prompts(first) == [list(range(6755 // 64))]
    assert prompts(second) == [[*range(8), *range(42 * 8, 42 * 8 + 27)]]
    assert [(turn.time_s, turn.gap_s, turn.output_tokens) for turn in second.main.turns] == [
        (3.052, 0.0, 316)
    ]


@pytest.mark.parametrize(
    ("block_tokens", "ids", "tokens", "blocks"),
    [
        (16, [5, 6, 7, 8, 9], 16 * 4 + 3, [8]),
        (32, [5, 6, 7, 8], 32 * 4, [6, 8]),
        (64, [5, 6, 7], 64 * 2 + 1, [5, 6]),
        (128, [5, 6, 7], 128 * 3, [10, 11, 12, 13, 14, 15]),
        (128, [5, 6, 7], 128 * 2 + 40, [10, 11, 12, 13]),
    ],
)
def test_ids_are_brought_to_64_tokens(
    tmp_path: Path, block_tokens: int, ids: list[int], tokens: int, blocks: list[int]
) -> None:
    (session,) = read_mooncake(write(tmp_path, row(ids, tokens)))
    assert prompts(session) == [blocks]


def test_the_block_size_comes_from_the_first_row_that_tells(tmp_path: Path) -> None:
    path = write(tmp_path, "{", row([1], 100), row([1, 2, 3, 4], 1024), row([1], 200))
    read = list(read_mooncake(path, lambda error: None))
    assert [session.main.turns[0].block_count for session in read] == [1, 16, 3]


def test_short_prompts_alone_have_blocks_of_512(tmp_path: Path) -> None:
    (session,) = read_mooncake(write(tmp_path, row([1, 2], 600)))
    assert prompts(session) == [[8, 9, 10, 11, 12, 13, 14, 15, 16]]


def test_blocks_without_an_id_are_new(tmp_path: Path) -> None:
    # No id for the last 472 tokens of 3 * 512 + 472.
    path = write(tmp_path, row([1, 2, 3], 2008, session_id="s"), row([1, 2, 3], 2008, session_id="s"))
    (session,) = read_mooncake(path)
    assert [turn.shared_blocks for turn in session.main.turns] == [0, 24]
    assert [turn.block_count for turn in session.main.turns] == [31, 31]


def test_rows_with_one_session_id_are_turns(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        row([1, 2, 3], session_id="a", timestamp=1000),
        row([7, 8, 9], session_id="b", timestamp=2000),
        row([1, 2, 3, 4], session_id="a", delay=2500),
        row([1, 2, 5], session_id="a", timestamp=9000),
        row([7], session_id="b", timestamp=8000, delay=1500),
    )
    a, b = read_mooncake(path)
    assert (a.name, prompts(a)) == ("a", [[1, 2, 3], [1, 2, 3, 4], [1, 2, 5]])
    assert [(turn.time_s, turn.gap_s, turn.api_s) for turn in a.main.turns] == [
        (1.0, 0.0, None), (3.5, 2.5, None), (9.0, 5.5, None),
    ]  # fmt: skip
    assert [(turn.time_s, turn.gap_s, turn.api_s) for turn in b.main.turns] == [
        (2.0, 0.0, 4.5),
        (8.0, 1.5, None),
    ]


def test_sessions_come_when_they_end(tmp_path: Path) -> None:
    rows = [row([1, 2, 3], session_id=name) for name in ("a", 'b"\\u00e9', "a", "c", 'b"\\u00e9', "c")]
    rows.insert(0, row([1, 2, 3], session_id="d", extra={"session_id": "a"}))
    names = [session.name for session in read_mooncake(write(tmp_path, *rows))]
    assert names == ["d", "a", 'b"\\u00e9', "c"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{", "not JSON (Expecting property name enclosed in double quotes: line 2 column 1 (char 2))"),
        ("[]", "must be an object, not a list"),
        ({"text_input": "hello"}, "input_length: is missing"),
        ({"input_length": 10, "output_length": 1}, "hash_ids: is missing"),
        (row([1, 2], 64), "hash_ids: has 2 ids, but 64 tokens have 1 blocks of 64"),
        (row([1, -2]), "hash_ids[1]: must be from 0 to 1099511627776, not -2"),
        (row([1, True]), "hash_ids[1]: must be a whole number, not true or false"),
        (row([1], timestamp=-1), "timestamp: must be a finite number, 0 or more, not -1"),
        (row([1], timestamp=10**400), f"timestamp: must be 2147483647 or less, not {'1' + '0' * 36}..."),
        (row([1], session_id=3), "session_id: must be a name, not the number 3"),
        (row([1], session_id="a\nb"), "session_id: must be printable, not 'a\\nb'"),
        (row([1], context_mode="deltas_with_responses"), "context_mode: must not be deltas: each row must have "
         "its whole prompt"),
    ],
)  # fmt: skip
def test_a_broken_row_is_named_or_skipped(tmp_path: Path, entry: object, message: str) -> None:
    path = write(tmp_path, row([1, 2, 3], session_id="a"), entry, row([1, 2, 3, 4], session_id="a"))
    with pytest.raises(TraceError) as caught:
        list(read_mooncake(path))
    assert str(caught.value) == f"{path}:2: {message}"
    bad: list[TraceError] = []
    (session,) = read_mooncake(path, bad.append)
    assert (len(bad), prompts(session)) == (1, [[1, 2, 3], [1, 2, 3, 4]])


@given(sessions())
def test_what_is_written_is_read_again(session: Session) -> None:
    """But for what the format cannot say: agents are sessions, only waits and the first time are known."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.jsonl"
        assert write_mooncake([session], path) == 1
        read = {found.name: found for found in read_mooncake(path)}
    assert len(read) == len(session.agents)
    for agent in session.agents:
        found = read["s" if agent is session.main else f"s/{agent.name}"].main
        assert found.turns[0].time_s == pytest.approx(agent.turns[0].time_s, abs=0.001)
        for ours, theirs in zip(agent.turns, found.turns, strict=True):
            assert theirs.prompt_tokens == ours.prompt_tokens
            assert theirs.output_tokens == max(1, ours.output_tokens)
            assert (theirs.shared_blocks, theirs.block_count) == (ours.shared_blocks, ours.block_count)
        for ours, theirs in zip(agent.turns[1:], found.turns[1:], strict=True):
            assert theirs.gap_s == pytest.approx(ours.gap_s, abs=0.001)


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_are_as_aiperf_wants_them(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write_mooncake([read_weka(SMALL), read_weka(SMALL)], path)
    rows = written(path)
    main = [entry for entry in rows if entry["session_id"] == "small"]
    assert list(main[0]) == [
        "session_id",
        "timestamp",
        "input_length",
        "output_length",
        "hash_ids",
        "context_mode",
    ]
    assert [entry.get("timestamp") for entry in main] == [0, None, None, None, None]
    assert [entry.get("delay") for entry in main] == [None, 8000, 17000, 10000, 0]
    assert [entry["output_length"] for entry in main] == [40, 25, 1, 12, 12]
    assert {entry["context_mode"] for entry in rows} == {"message_array_with_responses"}
    assert {entry["session_id"] for entry in rows} == {
        "small", "small/agent_001", "small/agent_002", "small#2", "small#2/agent_001", "small#2/agent_002",
    }  # fmt: skip
    sizes: dict[int, int] = {}
    for entry in rows:
        last = entry["input_length"] - 64 * (len(entry["hash_ids"]) - 1)
        assert 0 < last <= 64
        for block, tokens in zip(
            entry["hash_ids"], [64] * (len(entry["hash_ids"]) - 1) + [last], strict=True
        ):
            assert sizes.setdefault(block, tokens) == tokens
    ids = {name: {block for entry in rows if entry["session_id"] == name for block in entry["hash_ids"]}
           for name in ("small", "small#2")}  # fmt: skip
    assert ids["small"].isdisjoint(ids["small#2"])  # in a trace the same number, but another prompt


def test_an_open_loop_has_times_and_no_sessions(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write_mooncake([read_weka(SMALL)], path, open_loop=True)
    rows = written(path)
    assert [entry["timestamp"] for entry in rows] == [0, 10000, 30000, 40000, 41000, 13500, 18500, 31000]
    assert all(entry.keys() == {"timestamp", "input_length", "output_length", "hash_ids"} for entry in rows)


def test_it_is_compressed_if_its_name_says_so(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl.gz"
    write_mooncake([make_session("one", [(1, 2, 3)])], path)
    assert json.loads(gzip.decompress(path.read_bytes()))["session_id"] == "one"
    assert [session.name for session in read_mooncake(path)] == ["one"]


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("mine")
    with pytest.raises(TraceError) as caught:
        write_mooncake([make_session()], path)
    assert str(caught.value) == f"{path}: exists already: name another, or remove it"
    assert path.read_text() == "mine"
    with pytest.raises(TraceError, match="No such file"):
        write_mooncake([make_session()], tmp_path / "none" / "out.jsonl")


def test_no_name_is_no_file() -> None:
    with pytest.raises(TraceError, match="names no file"):
        write_mooncake([], Path())
