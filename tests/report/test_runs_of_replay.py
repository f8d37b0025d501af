"""The report says of a replay what the replay said of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashstate.economics.price_file import shipped_presets
from flashstate.report.runs.figures import Costs, figures
from flashstate.report.runs.lanes import sessions_shown
from flashstate.report.runs.read import read_runs
from tests.replay.runs import ServerProcess, replay
from tests.report.test_page import report

COSTS = Costs(next(iter(shipped_presets().values())), 1)


def test_figures_are_the_replays_own(tmp_path: Path) -> None:
    records = tmp_path / "r.jsonl"
    with ServerProcess(delay_s=0.002) as server:
        code, output, _ = replay(server.url, records, "--json")
    assert code == 0
    said = json.loads(output)
    found = read_runs(records, "engine")
    assert found is not None
    (run,) = found
    f = figures(run, COSTS)
    assert (f.sessions, run.left_out, run.stopped) == (2, 0, "")
    assert (f.requests, sum(f.failed.values())) == (said["requests"]["answered"], 0)
    assert f.seconds == pytest.approx(said["measured_s"], abs=0.01)
    assert f.hit_rate == pytest.approx(said["hit_rate"], abs=1e-6)
    assert f.prompt_tokens == said["prompt_tokens"]
    assert f.prompt_tokens_per_min == pytest.approx(60 * said["prompt_tokens_per_s"], rel=0.01)
    assert f.output_tokens_per_min == pytest.approx(60 * said["output_tokens_per_s"], rel=0.01)
    assert f.ttft_s.p90 == pytest.approx(said["ttft_s"]["p90"], abs=1e-4)
    assert f.latency_s.p50 == pytest.approx(said["latency_s"]["p50"], abs=1e-4)
    assert {reason: tokens for reason, tokens in f.missed_tokens.items() if tokens} == {
        reason: tokens for reason, tokens in said["missed_tokens"].items() if tokens
    }
    assert sessions_shown([run])
    assert {request.agent for request in run.requests} == {"main", "agent_001", "agent_002"}


def test_failures_and_a_line_cut_short_are_shown(tmp_path: Path) -> None:
    records, html = tmp_path / "r.jsonl", tmp_path / "r.html"
    with ServerProcess(fault="500", first=8) as server:
        replay(server.url, records)
    content = records.read_bytes()
    records.write_bytes(content[: content.rindex(b'"event": "request"') + 40])
    assert report(records, "--html", html)[0] == 0
    text = html.read_text()
    assert "left out as no records: 1 line" in text
    assert "http 500" in text
