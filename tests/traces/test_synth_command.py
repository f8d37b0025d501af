from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from flashstate.traces.mooncake_writer import write_mooncake
from flashstate.traces.parquet_writer import write_parquet
from flashstate.traces.read import read_sessions
from flashstate.traces.session import Session, Turn
from flashstate.traces.synth.generate import generate
from flashstate.traces.synth.params import claude_code, load_params
from flashstate.traces.synth_command import fit_command, synth

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(synth)
app.command("fit")(fit_command)


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


def times(session: Session) -> list[float]:
    return [turn.time_s for agent in session.agents for turn in agent.turns]


def rest(turn: Turn) -> tuple[object, ...]:
    return (
        turn.prompt_tokens, turn.output_tokens, turn.shared_blocks, turn.new_blocks, turn.api_s, turn.think_s,
        turn.ttft_s, turn.stop, turn.model, turn.streaming, turn.input_types, turn.output_types,
    )  # fmt: skip


def test_parquet_holds_what_was_drawn(tmp_path: Path) -> None:
    run("synth", "--sessions", 20, "--seed", 1, "--out", tmp_path / "out")
    for read, drawn in zip(read_sessions(tmp_path / "out"), generate(claude_code(), 20, 1), strict=True):
        assert (read.name, read.primary) == (drawn.name, True)
        assert times(read) == pytest.approx(times(drawn))
        for one, other in zip(read.agents, drawn.agents, strict=True):
            assert (one.name, one.spawn_turn) == (other.name, other.spawn_turn)
            assert list(map(rest, one.turns)) == list(map(rest, other.turns))


@pytest.mark.parametrize("name", ["requests.parquet", "traces.parquet", "agents.parquet"])
def test_the_same_seed_writes_the_same_bytes(tmp_path: Path, name: str) -> None:
    for folder in ("a", "b"):
        run("synth", "--sessions", 3, "--seed", 7, "--out", tmp_path / folder)
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_jsonl_file_is_mooncake(tmp_path: Path) -> None:
    run("synth", "--sessions", 2, "--out", tmp_path / "out.jsonl")
    write_mooncake(generate(claude_code(), 2, 0), tmp_path / "expected.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "expected.jsonl").read_bytes()
    run("synth", "--sessions", 2, "--format", "mooncake", "--out", tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == (tmp_path / "expected.jsonl").read_bytes()


def test_a_fit_of_ones_own(tmp_path: Path) -> None:
    write_parquet(generate(claude_code(), 30, 0), tmp_path / "traces")
    run("fit", tmp_path / "traces", "--out", tmp_path / "mine.json")
    params = load_params(tmp_path / "mine.json")
    assert (params.sessions, params.source) == (30, "traces")
    run("synth", "--sessions", 2, "--params", tmp_path / "mine.json", "--out", tmp_path / "out")
    drawn = list(read_sessions(tmp_path / "out"))
    assert [len(session.main.turns) for session in drawn] == [
        len(session.main.turns) for session in generate(params, 2, 0)
    ]


def test_errors_are_one_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for count in (0, -1, 1_000_001, 10**30):
        assert run("synth", "--sessions", count, "--out", out, code=1) == (
            f"flashstate: --sessions is {count}: it must be 1 to 1,000,000; for more, write several with other seeds\n"
        )
    assert not out.exists()
    missing = tmp_path / "none.json"
    assert run("synth", "--sessions", 1, "--params", missing, "--out", out, code=1) == (
        f"flashstate: {missing}: No such file or directory\n"
    )
    run("synth", "--sessions", 1, "--out", out)
    assert "exists already" in run("synth", "--sessions", 1, "--out", out, code=1)
    few = run("fit", out, "--out", tmp_path / "few.json", code=1)
    assert few.startswith("flashstate: 1 sessions with ") and few.count("\n") == 1
    assert not (tmp_path / "few.json").exists()
    assert "exists already" in run("fit", out, "--out", out, code=1)


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    errors = run("synth", "--sessions", 1, "--out", tmp_path / "out", "--params", pipe, code=1)
    assert "pipe: is not a regular file" in errors
