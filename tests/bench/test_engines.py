"""A comparison of real engines, small: FlashState at two loads, stock at one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flashstate.replay.run_log import read_events
from tests.demo.processes import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(420)]


def test_a_real_comparison(tmp_path: Path) -> None:
    trace = tmp_path / "work.jsonl"
    synth = ["trace", "synth", "--sessions", "6", "--seed", "3", "--out", str(trace)]
    bench = [
        "bench", str(trace), "--engines", "flashstate", "--sessions", "2,3", "--repeat", "1", "--cache", "700",
        "--warmup", "3", "--measure", "8", "--time-scale", "100", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    for command in (synth, bench):
        done = subprocess.run(
            [sys.executable, "-m", "flashstate", *command],
            capture_output=True,
            text=True,
            timeout=400,
            cwd=ROOT,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert [run["key"]["sessions"] for run in found["runs"]] == [2, 3]
    for run in found["runs"]:
        assert run["summary"]["verdict"] == "valid" and run["summary"]["requests"]["failed"] == 0
        assert 0 < run["busy"] <= 1.1 and run["start_s"] > 1
        # Room for everything: what may be resumed is, but for the token that is computed again in any case.
        assert run["summary"]["hit_rate"] == pytest.approx(run["summary"]["ideal_hit_rate"], abs=0.02)
    # The second load began with an empty cache: no first request of a play hit anything.
    records = tmp_path / "out" / "records" / "flashstate.3.0.jsonl"
    first = [
        event for event in read_events(records) if event["event"] == "request" and event["kind"] == "first"
    ]
    assert first and all(event["cached_tokens"] == 0 for event in first)
