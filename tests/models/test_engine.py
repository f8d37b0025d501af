"""Each tiny model in a real vLLM engine: it loads, its checkpoint has the size we say, and its state matters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flashstate.models.tiny import FAMILIES, write_tiny_model
from flashstate.models.tokenizer import SPECIAL

pytest.importorskip("vllm")
pytestmark = pytest.mark.engine

PROBE = Path(__file__).with_name("engine_probe.py")
DEFAULT = ("gdn",)
# nemotron_h is the same model as mamba2; stock vLLM, which runs here, cannot run kda (see test_kimi_linear.py)
SLOW = [family for family in FAMILIES if family not in (*DEFAULT, "nemotron_h", "kda")]


@pytest.fixture(scope="module", params=[*DEFAULT, *(pytest.param(f, marks=pytest.mark.slow) for f in SLOW)])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    family, folder = request.param, tmp_path_factory.mktemp("engine")
    write_tiny_model(family, folder / "model")
    command = [sys.executable, str(PROBE), family, str(folder / "model"), str(folder / "report.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return {**found, "family": FAMILIES[family]}


def test_checkpoint_takes_the_blocks_we_say(report: dict[str, Any]) -> None:
    assert report["recurrent_groups"] == report["family"].checkpoint_blocks
    assert report["groups"] - report["recurrent_groups"] == 1
    assert report["block_sizes"] == [report["family"].block_size]
    assert len(report["page_bytes"]) == 1


def test_greedy_answers_repeat_and_are_not_constant(report: dict[str, Any]) -> None:
    first, again, _ = report["answers"]
    assert first == again
    assert len(set(first["tokens"])) >= 8
    assert min(first["tokens"]) >= len(SPECIAL)  # a special token would be missing from the text


def test_answers_depend_on_the_far_past(report: dict[str, Any]) -> None:
    first, _, other_start = report["answers"]
    before, after = first["first_logprobs"], other_start["first_logprobs"]
    common = before.keys() & after.keys()
    largest = max((abs(before[token] - after[token]) for token in common), default=float("inf"))
    assert largest > (0.02 if report["family"].mixer == "shortconv" else 0.1)
