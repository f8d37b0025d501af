"""A synthetic trace replayed against `flashstate serve` of a tiny model: the whole way."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flashstate.bench.cores import available_cores, divide
from flashstate.bench.launch import serve_environment
from flashstate.bench.server import HOST, Server, free_port
from flashstate.cli import app
from flashstate.models.tiny import FAMILIES, write_tiny_model
from flashstate.replay.client import Model
from flashstate.replay.preflight import probe
from tests.replay.runs import events

pytestmark = pytest.mark.engine
IDS = range(16, 2000)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a `flashstate serve` with room for everything, gone at the end."""
    folder = tmp_path_factory.mktemp("served")
    model, port = write_tiny_model("gdn", folder / "gdn"), free_port()
    command = [
        *(sys.executable, "-m", "flashstate", "serve", str(model), *FAMILIES["gdn"].vllm_args),
        *("--num-gpu-blocks-override", "2000", "--max-model-len", "8192", "--max-num-batched-tokens", "2048"),
        *(
            "--served-model-name",
            "tiny",
            "--host",
            HOST,
            "--port",
            str(port),
            "--enable-prompt-tokens-details",
        ),
    ]
    server = Server("tiny", command, serve_environment(divide(available_cores())), port, folder / "log")
    with asyncio.Runner() as runner:
        try:
            runner.run(server.start())
            yield server.url
        finally:
            runner.run(server.stop())


def test_vllm_takes_a_salt_and_says_what_it_had(url: str) -> None:
    target = asyncio.run(probe(url, Model("tiny", None), IDS, 60.0, chat=False))
    assert (target.takes_salt, target.says_cached) == (True, True)


@pytest.mark.parametrize("how", [(), ("--chat",)], ids=["tokens", "chat"])
def test_a_synthetic_trace_hits_and_the_run_is_valid(how: tuple[str, ...], url: str, tmp_path: Path) -> None:
    trace, records = tmp_path / "t.jsonl", tmp_path / "r.jsonl"
    runner = CliRunner()
    made = runner.invoke(app, ["trace", "synth", "--sessions", "8", "--seed", "1", "--out", str(trace)])
    assert made.exit_code == 0, made.output
    result = runner.invoke(app, [
        "replay", str(trace), "--url", url, "--sessions", "4", "--records", str(records),
        "--token-scale", "120", "--time-scale", "30", "--warmup", "5", "--measure", "15",
        "--token-ids", f"{IDS.start}:{IDS.stop}", "--json", *how,
    ])  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["verdict"], found["reasons"], found["errors"]) == ("valid", [], {})
    assert found["hit_rate"] > 0
    requests = events(records, "request")
    assert len(requests) == found["requests"]["measured"] + found["requests"]["outside"]
    if not how:
        # The cache has room for all: what goes on from a turn resumes at its end.
        extends = [event for event in requests if event["kind"] == "extends" and event["cached_tokens"]]
        assert extends
        assert all(event["cached_tokens"] <= event["ideal_tokens"] for event in requests)
