"""The whole demo on real engines, with a cache for everything: nothing that was computed is computed again."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from flashstate.replay.record import Record
from flashstate.replay.run_log import measured_records

pytestmark = [pytest.mark.engine, pytest.mark.timeout(420)]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "flashstate", "demo", "--quick", "--cache", "large", "--sessions", "3"]
    done = subprocess.run([*command, "--out", str(folder)], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Hit rate" in done.stdout
    return folder


@pytest.fixture(scope="module")
def records(out: Path) -> list[Record]:
    return measured_records(out / "records" / "flashstate.3.0.jsonl")


def test_every_follow_up_turn_resumes_where_the_last_one_s_state_stood(records: list[Record]) -> None:
    turns: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.turn):
        assert record.error is None
        turns.setdefault(record.session, []).append(record)
    extended = 0
    for session in turns.values():
        for before, after in pairwise(session):
            if after.kind == "extends":
                assert after.cached_tokens == before.prompt_tokens + before.output_tokens - 1
                extended += 1
    assert extended >= 8
    assert {record.kind for record in records} == {"first", "extends", "edit", "fork"}


def test_redundant_prefill_is_zero(records: list[Record], out: Path) -> None:
    assert sum(record.recomputed_tokens for record in records) == 0
    results = json.loads((out / "results.json").read_text())
    ours = results["engines"]["flashstate"]
    assert ours["recomputed_tokens"] == 0
    assert ours["resumed_tokens"] == ours["ideal_tokens"] == sum(r.ideal_tokens for r in records)
    assert ours["misses_tokens"] == {"placement": 0, "capacity": 0, "dependency": 0}


def test_the_server_s_reasons_add_up_to_what_the_client_saw(out: Path) -> None:
    results = json.loads((out / "results.json").read_text())
    assert set(results["engines"]) == {"stock", "stock-best", "flashstate"}
    stock = results["engines"]["stock"]
    assert sum(stock["misses_tokens"].values()) == stock["recomputed_tokens"] > 0
    assert (out / "report.html").read_text().startswith("<!doctype html>")
