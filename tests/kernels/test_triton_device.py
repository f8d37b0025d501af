"""The script for a GPU machine, on the CPU in Triton's interpreter: all but the timing itself and its baseline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.kernels_device import main

from flashstate.kernels.base import Recurrence

ROOT = Path(__file__).parents[2]


def test_it_checks_times_and_reports_each_kernel() -> None:
    command = [str(ROOT / "benchmarks" / "device.sh"), "--device", "cpu", "--tiny"]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    record = json.loads(run.stdout.splitlines()[-1])
    names = {recurrence.value for recurrence in Recurrence}
    assert {check["recurrence"] for check in record["promises"]} == names
    assert len(record["promises"]) == 6 * len(names)
    assert not any(check["failed"] for check in record["promises"])
    assert {timing["recurrence"] for timing in record["timings"]} == names
    assert all(timing["export_ms"] > 0 and timing["off_ms"] > 0 for timing in record["timings"])
    assert "no GPU" in record["device"] and run.stdout.startswith("GPU: no GPU")


def test_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(sys, "argv", ["kernels_device", "--device", "cpu", "--tiny"])
    with pytest.raises(SystemExit, match="needs TRITON_INTERPRET=1"):
        main()
