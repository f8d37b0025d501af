"""A file is never in memory as a whole: only the sessions that are open are."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

import pytest

from flashstate.traces.parquet_writer import write_parquet
from flashstate.traces.read import read_sessions
from flashstate.traces.session import Session
from flashstate.traces.stats.collect import Collector
from tests.traces.made import make_session

MEBIBYTE = 2**20
SESSIONS = 90
BOUND = 3 * MEBIBYTE
"""It takes half of one; but the table of interned strings may just grow, at 2 MiB."""


def mooncake_lines(together: int) -> Iterator[str]:
    """Sessions of ten turns, 1,000 ids and more a row; `together` of them are interleaved."""
    for group in range(0, SESSIONS, together):
        for turn in range(10):
            for session in range(group, group + together):
                ids = list(range(session * 10_000, session * 10_000 + 1000 + 10 * turn))
                yield json.dumps(
                    {
                        "session_id": f"s{session}",
                        "input_length": 64 * len(ids),
                        "output_length": 9,
                        "hash_ids": ids,
                    }
                )


def weka_lines() -> Iterator[str]:
    for session in range(SESSIONS):
        prompts = [list(range(1000 + 10 * turn)) for turn in range(10)]
        requests = [
            {"t": turn, "in": 64 * len(ids), "out": 9, "hash_ids": ids} for turn, ids in enumerate(prompts)
        ]
        yield json.dumps({"id": f"s{session}", "requests": requests})


def write(path: Path, lines: Iterable[str]) -> None:
    with path.open("w") as file:
        file.writelines(f"{line}\n" for line in lines)


def peak(sessions: Iterable[Session]) -> int:
    """Bytes that going through all of them takes at most, statistics included."""
    tracemalloc.start()
    collected = Collector().add_all(sessions)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (collected.counts["traces"], collected.counts["requests"]) == (SESSIONS, 10 * SESSIONS)
    return most


@pytest.mark.parametrize("together", [1, 3])
def test_mooncake_rows_are_read_one_by_one(tmp_path: Path, together: int) -> None:
    path = tmp_path / "m.jsonl"
    write(path, mooncake_lines(together))
    assert path.stat().st_size > BOUND * 4 / 3
    assert peak(read_sessions(path)) < BOUND


def test_weka_sessions_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    write(path, weka_lines())
    assert path.stat().st_size > BOUND * 4 / 3
    assert peak(read_sessions(path)) < BOUND


def test_sessions_are_converted_one_by_one(tmp_path: Path) -> None:
    alive = count()

    def made() -> Iterator[Session]:
        for _ in range(2000):
            yield make_session(f"s{next(alive)}", [range(200), range(210)])

    tracemalloc.start()
    write_parquet(made(), tmp_path / "out")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 16 * MEBIBYTE  # 4,096 rows wait for a batch; the names and all agents' rows do, too
