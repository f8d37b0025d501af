"""AIPerf replays the same traces: what we write for it, what becomes of that on a real server, what we read back."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from flashstate.bench.cores import available_cores, divide
from flashstate.bench.launch import serve_environment
from flashstate.bench.server import HOST, Server, free_port
from flashstate.cli import app
from flashstate.models.tiny import FAMILIES, write_tiny_model
from flashstate.report.runs.read import read_runs
from flashstate.report.runs.request import Run
from flashstate.traces.session import BLOCK_TOKENS
from tests.traces.made import SMALL

ROW_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "session_id": (str,),
    "timestamp": (int, float),
    "delay": (int, float),
    "input_length": (int,),
    "output_length": (int,),
    "hash_ids": (list,),
    "context_mode": (str,),
}
"""What AIPerf 0.13 reads of a row without text, and `context_mode`, which later ones read."""


def flashstate(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def make_rows(path: Path, source: Path, *how: object) -> list[dict[str, Any]]:
    flashstate("trace", "convert", source, path, "--to", "mooncake", *how)
    return [json.loads(line) for line in path.read_text().splitlines()]


def make_synthetic(folder: Path, sessions: int) -> Path:
    flashstate("trace", "synth", "--sessions", sessions, "--seed", 2, "--out", folder / "synthetic")
    return folder / "synthetic"


def check_rows(rows: list[dict[str, Any]]) -> None:
    """As AIPerf checks them: types, one block size for every id, and ids for the whole prompt."""
    sizes: dict[int, int] = {}
    for row in rows:
        assert row.keys() <= ROW_TYPES.keys()
        for name, value in row.items():
            assert isinstance(value, ROW_TYPES[name]) and not isinstance(value, bool), name
        ids, prompt_tokens = row["hash_ids"], row["input_length"]
        last = prompt_tokens - BLOCK_TOKENS * (len(ids) - 1)
        assert 0 < last <= BLOCK_TOKENS
        assert row["output_length"] >= 1
        for place, block in enumerate(ids):
            tokens = last if place == len(ids) - 1 else BLOCK_TOKENS
            assert sizes.setdefault(block, tokens) == tokens


@pytest.mark.parametrize(
    "scales", [(), ("--token-scale", "27.2", "--time-scale", "60")], ids=["full", "scaled"]
)
@pytest.mark.parametrize("made", [False, True], ids=["small", "synthetic"])
def test_open_loop_rows_are_a_schedule(made: bool, scales: tuple[str, ...], tmp_path: Path) -> None:
    source = make_synthetic(tmp_path, 3) if made else SMALL
    rows = make_rows(tmp_path / "rows.jsonl", source, "--open-loop", *scales)
    check_rows(rows)
    assert all(row.keys() == {"timestamp", "input_length", "output_length", "hash_ids"} for row in rows)
    turns = flashstate("trace", "stats", source, "--json")
    assert len(rows) == json.loads(turns)[source.name]["Comparison"]["requests"]
    # Agents follow one another in the file: time goes on but where the next one begins.
    times = [row["timestamp"] for row in rows]
    sessions = make_rows(tmp_path / "sessions.jsonl", source, *scales)
    begins = [row for row in sessions if "timestamp" in row]
    assert sum(later < earlier for earlier, later in pairwise(times)) < len(begins)
    assert min(times) == 0


@pytest.mark.parametrize(
    "scales", [(), ("--token-scale", "27.2", "--time-scale", "60")], ids=["full", "scaled"]
)
def test_rows_of_sessions_have_one_start_and_then_waits(scales: tuple[str, ...], tmp_path: Path) -> None:
    rows = make_rows(tmp_path / "rows.jsonl", make_synthetic(tmp_path, 3), *scales)
    check_rows(rows)
    begun: set[str] = set()
    for row in rows:
        assert ("timestamp" in row) != ("delay" in row)
        assert ("delay" in row) == (row["session_id"] in begun)
        assert row["context_mode"] == "message_array_with_responses"
        begun.add(row["session_id"])


def test_a_scaled_trace_shares_what_the_trace_shared(tmp_path: Path) -> None:
    """Rounded down to a block."""
    source = make_synthetic(tmp_path, 2)
    (before, after) = (
        make_rows(tmp_path / f"{scale}.jsonl", source, "--token-scale", scale) for scale in (1, 20)
    )
    shared = 0
    for earlier, later, small, large in zip(before, before[1:], after, after[1:], strict=False):
        if earlier["session_id"] != later["session_id"]:
            continue
        recorded = BLOCK_TOKENS * common(earlier["hash_ids"], later["hash_ids"]) / 20
        found = BLOCK_TOKENS * common(small["hash_ids"], large["hash_ids"])
        assert recorded - BLOCK_TOKENS < found <= recorded
        shared += found
    assert shared > 0.5 * sum(row["input_length"] for row in after)


def common(a: list[int], b: list[int]) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def make_record(number: int, cached_tokens: int, **changed: Any) -> dict[str, Any]:
    """A line of AIPerf 0.13's profile_export.jsonl, from a fixed schedule: 2,000 prompt tokens, 30 of output."""
    start_ns = 1_796_076_000_000_000_000 + number * 3_000_000_000
    tokens = {
        "input_sequence_length": 1990,
        "output_sequence_length": 30,
        "output_token_count": 30,
        "usage_prompt_tokens": 2000,
        "usage_completion_tokens": 30,
        "usage_prompt_cache_read_tokens": cached_tokens,
    }
    times = {"time_to_first_token": 400.0, "request_latency": 1500.0, "inter_token_latency": 37.9}
    return {
        "metadata": {
            "session_num": number,
            "x_request_id": f"7f0c-{number}",
            "x_correlation_id": f"fixed-schedule-session_{number:06d}",
            "conversation_id": f"session_{number:06d}",
            "turn_index": 0,
            "credit_issued_ns": start_ns - 400_000,
            "request_start_ns": start_ns,
            "request_ack_ns": start_ns + 5_000_000,
            "request_end_ns": start_ns + 1_500_000_000,
            "worker_id": "worker_0",
            "record_processor_id": "record_processor_0",
            "benchmark_phase": "profiling",
            "phase_index": 0,
            "profiling_index": 0,
            "phase_name": "profiling",
            "phase_kind": "profiling",
            "was_cancelled": False,
            "context_overflow_skip": False,
            "agent_depth": 0,
            "root_correlation_id": f"fixed-schedule-session_{number:06d}",
        },
        "metrics": {name: {"value": value, "unit": "tokens"} for name, value in tokens.items()}
        | {name: {"value": value, "unit": "ms"} for name, value in times.items()}
        | {"inter_chunk_latency": {"value": [37.0, 38.0], "unit": "ms"}},
    } | changed


def test_what_aiperf_records_is_read(tmp_path: Path) -> None:
    failure = {"code": 400, "type": "Bad Request", "message": "too long", "cause_chain": ["HTTPError"]}
    failed = make_record(3, 0, metrics={"error_isl": {"value": 99, "unit": "tokens"}}, error=failure)
    lines = [json.dumps(record) for record in (make_record(1, 1500), make_record(2, 0), failed)]
    (tmp_path / "profile_export.jsonl").write_text("\n".join(lines))
    run = read_run(tmp_path / "profile_export.jsonl")
    assert [request.cached_tokens for request in run.answered] == [1500, 0]
    assert {(request.prompt_tokens, request.output_tokens) for request in run.answered} == {(2000, 30)}
    assert [round(request.start_s, 6) for request in run.requests] == [0.0, 3.0, 6.0]
    first = run.answered[0]
    assert (first.session, first.turn) == ("session_000001", 0)
    assert first.first_s is not None
    assert (round(first.first_s, 6), round(first.end_s, 6)) == (0.4, 1.5)
    assert run.requests[2].error == "Bad Request: too long"


def read_run(path: Path) -> Run:
    found = read_runs(path, "aiperf")
    assert found is not None and len(found) == 1
    return found[0]


@pytest.fixture
def aiperf() -> str:
    """AIPerf's command: it has many dependencies of its own, and is never installed beside ours."""
    name = os.environ.get("AIPERF", "aiperf")
    command = shutil.which(name)
    if command is None:
        pytest.skip(
            f"NOT TESTED WITH AIPERF: no command {name}; `pip install aiperf` into a folder of its own and "
            "name its command in $AIPERF"
        )
    return command


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a `flashstate serve` with room for everything, and its model's folder."""
    model, port = write_tiny_model("gdn", tmp_path / "gdn"), free_port()
    command = [
        *(sys.executable, "-m", "flashstate", "serve", str(model), *FAMILIES["gdn"].vllm_args),
        *("--num-gpu-blocks-override", "2000", "--max-model-len", "8192", "--served-model-name", "tiny"),
        *("--host", HOST, "--port", str(port), "--enable-prompt-tokens-details"),
    ]
    server = Server("tiny", command, serve_environment(divide(available_cores())), port, tmp_path / "log")
    with asyncio.Runner() as runner:
        try:
            runner.run(server.start())
            yield server.url, model
        finally:
            runner.run(server.stop())


def make_hub(hub: Path, model: Path) -> Path:
    """A cache that holds the tokenizer as local/tiny: AIPerf 0.13 takes no folder, but for fewer than ten prompts."""
    cached = hub / "models--local--tiny"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0")
    (cached / "snapshots").mkdir()
    (cached / "snapshots" / "0").symlink_to(model)
    return hub


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_aiperf_replays_a_trace_against_our_server(
    aiperf: str, served: tuple[str, Path], tmp_path: Path
) -> None:
    url, model = served
    rows = make_rows(
        tmp_path / "rows.jsonl", make_synthetic(tmp_path, 2),
        "--open-loop", "--token-scale", "60", "--time-scale", "60",
    )  # fmt: skip
    command = [
        *(aiperf, "profile", "--url", url, "--model", "tiny", "--tokenizer", "local/tiny"),
        *("--endpoint-type", "completions", "--streaming", "--extra-inputs", "ignore_eos:true"),
        *("--input-file", str(tmp_path / "rows.jsonl"), "--custom-dataset-type", "mooncake_trace"),
        *("--isl-block-size", str(BLOCK_TOKENS), "--fixed-schedule", "--artifact-dir", str(tmp_path / "out")),
        *("--workers-max", "1", "--record-processors", "1", "--ui", "none"),
        *("--no-gpu-telemetry", "--no-server-metrics"),
    ]
    hub = make_hub(tmp_path / "hub", model)
    environment = os.environ | {"HF_HUB_CACHE": str(hub), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    run = read_run(tmp_path / "out" / "profile_export.jsonl")
    assert len(run.answered) == len(run.requests) == len(rows)
    assert sum(request.output_tokens for request in run.answered) == sum(row["output_length"] for row in rows)
    prompt_tokens = sum(request.prompt_tokens for request in run.answered)
    # It sends text: tokens that meet at the end of a block might become one, though they rarely do.
    assert prompt_tokens == pytest.approx(sum(row["input_length"] for row in rows), rel=0.01)
    begins = sorted(row["timestamp"] / 1000 for row in rows)
    late = [request.start_s - at for request, at in zip(run.requests, begins, strict=True)]
    assert max(map(abs, late)) < 5.0  # of 40 s, on a machine that may be busy

    cached_tokens = sum(request.cached_tokens or 0 for request in run.answered)
    assert cached_tokens > 0.5 * prompt_tokens
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as page:
        text = page.read().decode()
    resumed = [line for line in text.splitlines() if line.startswith("flashstate:resumed_tokens_total")]
    assert sum(float(line.split()[-1]) for line in resumed) == cached_tokens

    flashstate("report", f"aiperf={tmp_path / 'out' / 'profile_export.jsonl'}", "--html", tmp_path / "r.html")
    assert f"aiperf: {len(rows)} requests from AIPerf." in (tmp_path / "r.html").read_text()
