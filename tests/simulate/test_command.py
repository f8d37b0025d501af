from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from flashstate.cli import app
from flashstate.simulate.systems import DEFAULT_SYSTEMS, systems
from flashstate.traces.mooncake_writer import write_mooncake
from flashstate.traces.parquet_writer import write_parquet
from flashstate.traces.session import Session
from tests.simulate.sessions import make_session, make_sessions
from tests.traces.made import shared_traces

SHORT = ("--minutes", "3", "--warmup", "1", "--blocks", "20", "--seeds", "1", "--sessions", "1,3")
"""Rules for sessions of a minute."""


def make_traces(folder: Path, sessions: list[Session] | None = None) -> str:
    path = folder / "traces"
    write_parquet(sessions or make_sessions(5), path)
    return str(path)


def simulate(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *arguments], env={"COLUMNS": "150", "NO_COLOR": "1"})


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "flashstate", "simulate", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "150"},
    )  # fmt: skip


def errors_of(process: subprocess.Popen[str]) -> str:
    """What it says until its end, which comes with the test if not before."""
    try:
        return process.communicate(timeout=60)[1]
    finally:
        process.kill()


def results(path: Path) -> dict[tuple[str, int, int], dict[str, Any]]:
    rows = json.loads(path.read_text())["results"]
    return {(row["key"]["policy"], row["key"]["sessions"], row["key"]["seed"]): row for row in rows}


def timeless(rows: dict[tuple[str, int, int], dict[str, Any]]) -> dict[tuple[str, int, int], dict[str, Any]]:
    return {key: row | {"wall_s": 0.0} for key, row in rows.items()}


def test_a_sweep_from_traces_to_tables(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    found = simulate(
        make_traces(tmp_path), *SHORT, "--policy", "gds,vllm-sparse,clairvoyant", "--json", str(out)
    )
    assert (found.exit_code, found.stderr) == (0, "")
    for shown in (
        "5 sessions of 30 requests", "6 runs, recorded clock", "Hit rate: prompt tokens", "(ideal)", "(working set)",
        "Redundant prefill", "Below the bound", "placement", f"results: {out}",
    ):  # fmt: skip
        assert shown in found.stdout
    document = json.loads(out.read_text())
    assert set(results(out)) == {(p, n, 0) for p in ("gds", "vllm-sparse", "clairvoyant") for n in (1, 3)}
    setup = document["setup"]
    assert setup["traces"] | {"digest": ""} == {
        "names": ["traces"], "agents": "main", "sessions": 5, "requests": 30, "left_out": {}, "digest": ""
    }  # fmt: skip
    assert (setup["geometry"]["blocks"], setup["clock"], setup["rules"]["duration_s"]) == (
        20,
        "recorded",
        180.0,
    )
    assert document["machine"]["cores"] >= 1 and document["date"] and document["policies"]["gds"]
    assert not list(tmp_path.glob("*.part*"))


def test_sub_agents_are_played_if_asked_for(tmp_path: Path) -> None:
    found = simulate(make_traces(tmp_path), *SHORT, "--policy", "gds", "--agents", "all")
    assert "5 sessions of 36 requests" in found.stdout


def test_without_a_file_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = make_traces(tmp_path)
    monkeypatch.chdir(tmp_path)
    found = simulate(traces, *SHORT, "--policy", "gds")
    assert found.exit_code == 0
    assert "results:" not in found.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["traces"]


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    out, partial = tmp_path / "out.json", tmp_path / "out.json.partial"
    command = [
        make_traces(tmp_path), "--policy", "gds,rollback", "--sessions", "3,4", "--minutes", "8",
        "--warmup", "1", "--blocks", "60", "--jobs", "2",
    ]  # fmt: skip
    # So many that no machine is done before the signal, however late it comes.
    process = start(*command, "--seeds", "900", "--json", str(out))
    await_lines(partial, 4)
    process.send_signal(signal.SIGINT)
    errors = errors_of(process)
    assert process.returncode == 130
    done = len(partial.read_text().splitlines()) - 1
    assert 3 <= done < 3600
    assert errors.splitlines() == [
        f"interrupted after {done} of 3600 runs, kept in {partial}: the same command goes on from there"
    ]
    assert not out.exists()
    assert running_in(tmp_path) == []
    kept = [json.loads(line) for line in partial.read_text().splitlines()[1:]]

    # The runs come seed by seed, two policies at two loads each. Of the rest, a few will do.
    seeds = done // 4 + 2
    command += ["--seeds", str(seeds)]
    found = simulate(*command, "--json", str(out))
    assert found.exit_code == 0
    assert f"{4 * seeds} runs, {done} of them done already" in found.stdout
    assert not partial.exists()
    assert len(results(out)) == 4 * seeds
    for row in kept:  # the very same, to the time they took
        key = row["key"]
        assert results(out)[key["policy"], key["sessions"], key["seed"]] == row

    # As if it had never been interrupted.
    whole = tmp_path / "whole.json"
    assert simulate(*command, "--json", str(whole)).exit_code == 0
    assert timeless(results(whole)) == timeless(results(out))


def test_a_closed_terminal_is_an_interrupt_too(tmp_path: Path) -> None:
    partial = tmp_path / "out.json.partial"
    process = start(
        make_traces(tmp_path), "--sessions", "4", "--seeds", "900", "--policy", "gds", "--minutes", "8",
        "--warmup", "1", "--json", str(tmp_path / "out.json"),
    )  # fmt: skip
    await_lines(partial, 2)
    process.send_signal(signal.SIGHUP)
    errors = errors_of(process)
    assert process.returncode == 130
    assert "interrupted after" in errors and "Traceback" not in errors
    assert running_in(tmp_path) == []


LOST_INTERRUPT = """
import os, signal, sys, threading, time
from flashstate.cli import main

threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
forks = 0

def interrupt_third_fork():
    global forks
    forks += 1
    if forks == 3:
        os.kill(os.getpid(), signal.SIGINT)  # another thread takes it: this one has it blocked
        time.sleep(0.1)

os.register_at_fork(after_in_parent=interrupt_third_fork)
main()
"""


def test_an_interrupt_that_strikes_a_hook_of_a_fork_is_not_lost(tmp_path: Path) -> None:
    """Python prints what a hook raises, and goes on."""
    command = ("simulate", make_traces(tmp_path), *SHORT, "--seeds", "900", "--policy", "gds")
    found = subprocess.run(
        [sys.executable, "-c", LOST_INTERRUPT, *command], capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 130
    assert "interrupted after" in found.stderr and "of 1800 runs" in found.stderr


def await_lines(path: Path, lines: int) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or len(path.read_text().splitlines()) < lines:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def running_in(folder: Path) -> list[str]:
    """Command lines of processes that name `folder`."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


def test_the_same_command_again_runs_nothing_and_another_adds(tmp_path: Path) -> None:
    out, traces = tmp_path / "out.json", make_traces(tmp_path)
    assert simulate(traces, *SHORT, "--policy", "gds", "--json", str(out)).exit_code == 0
    before = results(out)
    again = simulate(traces, *SHORT, "--policy", "gds", "--json", str(out))
    assert "2 runs, 2 of them done already" in again.stdout
    assert results(out) == before
    assert simulate(traces, *SHORT, "--policy", "lean-lru", "--json", str(out)).exit_code == 0
    assert set(results(out)) == {(p, n, 0) for p in ("gds", "lean-lru") for n in (1, 3)}


def test_another_setup_is_not_written_over(tmp_path: Path) -> None:
    out, traces = tmp_path / "out.json", make_traces(tmp_path)
    assert simulate(traces, *SHORT, "--policy", "gds", "--json", str(out)).exit_code == 0
    before = out.read_text()
    found = simulate(traces, *SHORT, "--policy", "gds", "--gaps", "corrected", "--json", str(out))
    assert found.exit_code == 1
    assert found.stderr == (
        f"flashstate: {out}: holds 2 runs of another setup, other in rules.gaps: name another --json, or remove it\n"
    )
    assert out.read_text() == before


def test_every_system_runs(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    found = simulate(make_traces(tmp_path), *SHORT, "--policy", "all", "--agents", "all", "--json", str(out))
    assert (found.exit_code, found.stderr) == (0, "")
    assert {policy for policy, _, _ in results(out)} == set(systems())


def test_the_engines_clock_says_how_fast_and_leaves_out_what_needs_a_schedule(tmp_path: Path) -> None:
    out, timing = tmp_path / "out.json", tmp_path / "timing.json"
    timing.write_text('{"decode_step_s": 0.02}')
    engine = ("--clock", "engine", "--order", "hrrn", "--guard", "0.9", "--timing", str(timing))
    found = simulate(
        make_traces(tmp_path), *SHORT, *engine, "--policy", "gds,clairvoyant,infinite", "--json", str(out)
    )
    assert (found.exit_code, found.stderr) == (0, "")
    assert "4 runs, engine clock, recorded gaps, hrrn order, guard 0.9" in found.stdout
    for shown in ("Output throughput", "TTFT p90", "Worst wait"):
        assert shown in found.stdout
    serving = json.loads(out.read_text())["setup"]["serving"]
    assert (serving["order"], serving["guard"], serving["timing"]["decode_step_s"]) == ("hrrn", 0.9, 0.02)
    assert {policy for policy, _, _ in results(out)} == {"gds", "infinite"}
    assert all(row["served"]["output_tokens_per_min"] > 0 for row in results(out).values())
    # Another order is another setup.
    found = simulate(make_traces(tmp_path / "b"), *SHORT, *engine[:2], "--policy", "gds", "--json", str(out))
    assert "holds 4 runs of another setup" in found.stderr and "serving.order" in found.stderr


def test_the_list_names_everything() -> None:
    found = simulate("--list")
    assert found.exit_code == 0
    for name in systems():
        assert f"{name}{'*' if name in DEFAULT_SYSTEMS else ''} " in found.stdout
    assert "glm-5.3-flash" in found.stdout and "2,531 blocks of 4,352 tokens, 5 a checkpoint" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--policy", "nonsense"], "--policy: policy 'nonsense': unknown; one of vllm-dense, vllm-sparse,"),
        (["--policy", ","], "--policy: names nothing"),
        (["--sessions", "16,x"], "--sessions x: must be numbers from 1 to 10000, with commas"),
        (["--sessions", "0"], "--sessions 0: must be numbers from 1"),
        (["--sessions", "9" * 5000], f"--sessions {'9' * 40}: must be numbers from 1"),
        (["--sessions", ""], "--sessions: names nothing"),
        (["--seeds", "0"], "--seeds 0: how many, from 1 to 1000"),
        (["--jobs", "0"], "--jobs 0: must be 1 or more"),
        (["--clock", "sundial"], "--clock sundial: must be one of recorded"),
        (["--gaps", "wide"], "--gaps wide: must be one of recorded, corrected"),
        (["--agents", "none"], "--agents none: must be one of main, all"),
        (["--minutes", "10", "--warmup", "10"], "--warmup 10: must be 0 or more, and below --minutes 10"),
        (["--minutes", "nan"], "--minutes nan: must be above 0, and 10080 at most"),
        (["--minutes", "1e300"], "--minutes 1e+300: must be above 0, and 10080 at most"),
        (["--gap-cap", "-1"], "--gap-cap -1: must be 0 or more"),
        (["--geometry", "gpt"], "geometry 'gpt': unknown; one of glm-5.3-flash,"),
        (["--geometry", "."], "--geometry .: needs --memory GIB"),
        (["--geometry", ".", "--memory", "1"], "config.json: No such file"),
        (["--memory", "5"], "--memory and --tp: only with a config.json"),
        (["--blocks", "0"], "blocks 0: must be 1 or more"),
        (["--cost", "-1", "2"], "--cost -1 2: both must be finite and 0 or more"),
        (["--cost", "nan", "0"], "--cost nan 0: both must be finite"),
        (["--order", "fcfs"], "--order: only with --clock engine"),
        (["--guard", "1", "--timing", "x"], "--guard, --timing: only with --clock engine"),
        (["--clock", "engine", "--order", "luck"], "--order luck: must be one of fcfs, resident, hrrn"),
        (["--clock", "engine", "--guard", "0"], "guard 0.0: must be finite and above 0"),
        (["--clock", "engine", "--timing", "none.json"], "none.json: No such file"),
        (
            ["--clock", "engine", "--policy", "clairvoyant"],
            "--policy clairvoyant: needs a schedule known beforehand, which only",
        ),
        (["--json", "/proc/nowhere/out.json"], "/proc/nowhere: "),
        (["--json", ""], "--json: names no file"),
        (["--json", "."], "--json: names no file"),
        (["--json", "/dev/full"], "/dev/full: is not a regular file: name another --json"),
    ],
)
def test_options_that_make_no_sense(
    arguments: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = make_traces(tmp_path)
    monkeypatch.chdir(tmp_path)
    found = simulate(traces, *arguments)
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.startswith("flashstate: ") and found.stderr.count("\n") == 1
    assert reason in found.stderr


def test_traces_must_be_named_and_there(tmp_path: Path) -> None:
    assert "name traces to replay" in simulate().stderr
    found = simulate(str(tmp_path / "nothing.json"))
    assert (found.exit_code, found.stderr.count("\n")) == (1, 1)
    assert "nothing.json: No such file" in found.stderr
    (tmp_path / "empty.jsonl").write_text("")
    assert "empty.jsonl: no session to play" in simulate(str(tmp_path / "empty.jsonl")).stderr


def test_linked_recordings_and_single_requests_are_left_out(tmp_path: Path) -> None:
    made = [*make_sessions(3), make_session(7, turns=1), replace(make_session(8), primary=False)]
    traces = make_traces(tmp_path, made)
    found = simulate(traces, *SHORT, "--policy", "gds")
    assert "3 sessions of 18 requests (left out: 1 of one request, 1 linked to another)" in found.stdout
    assert (
        "5 sessions of 25 requests\n" in simulate(traces, *SHORT, "--policy", "gds", "--all-sessions").stdout
    )
    found = simulate(make_traces(tmp_path / "single", [make_session(7, turns=1)]), *SHORT)
    assert "no session to play (1 of one request left out: --all-sessions keeps them)" in found.stderr


def test_broken_records_end_the_command_or_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    write_mooncake(make_sessions(4), file, open_loop=False)
    file.write_text("{broken\n" + file.read_text())
    found = simulate(str(file), *SHORT, "--policy", "gds")
    assert (found.exit_code, found.stderr.count("\n")) == (1, 1)
    assert "traces.jsonl:1" in found.stderr
    found = simulate(str(file), *SHORT, "--policy", "gds", "--skip-bad")
    assert found.exit_code == 0
    assert "skipped: " in found.stderr and "1 broken" in found.stdout


def test_sessions_without_times_do_not_run_for_ever(tmp_path: Path) -> None:
    def timeless(session: Session) -> Session:
        turns = tuple(replace(turn, gap_s=0.0, time_s=0.0, api_s=None) for turn in session.main.turns)
        return replace(session, main=replace(session.main, turns=turns), sub_agents=())

    good, bad = make_sessions(2), [timeless(session) for session in make_sessions(2, seed=5)]
    found = simulate(make_traces(tmp_path, good + bad), *SHORT, "--policy", "gds")
    assert "2 sessions of 12 requests (left out: 2 without times)" in found.stdout
    found = simulate(make_traces(tmp_path / "bad", bad), *SHORT, "--policy", "gds")
    assert (found.exit_code, found.stderr.count("\n")) == (1, 1)
    assert "need 0.1 s each on average, server time and gap: use --clock engine" in found.stderr


@pytest.mark.parametrize("tokens", [2**24, 2**31 - 1])
def test_prompts_that_no_path_can_hold_are_broken_records(tokens: int, tmp_path: Path) -> None:
    def ending_with(output_tokens: int) -> str:
        *before, last = make_session(3).main.turns
        turns = (*before, replace(last, output_tokens=output_tokens - last.prompt_tokens))
        long = replace(make_session(3), main=replace(make_session(3).main, turns=turns))
        return make_traces(tmp_path / str(output_tokens), [*make_sessions(2), long])

    traces = ending_with(tokens)
    found = simulate(traces, *SHORT, "--policy", "gds")
    assert (found.exit_code, found.stderr.count("\n")) == (1, 1)
    assert f"has a prompt and output of {tokens} tokens: a simulation takes 16777215 at most" in found.stderr
    found = simulate(traces, *SHORT, "--policy", "gds", "--skip-bad")
    assert "2 sessions of 12 requests (left out: 1 broken)" in found.stdout
    assert simulate(ending_with(2**24 - 1), *SHORT, "--policy", "gds").exit_code == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"prompt_tokens": "many"},
        {"missed_tokens": {}},
        {"occupancy": float("nan")},
        {"working_set": 1e308},
        {"evictions": [1]},
        {"median_uncached_tokens": 10**400},
    ],
)
def test_edited_results_are_refused_and_stay(changed: dict[str, Any], tmp_path: Path) -> None:
    command = [make_traces(tmp_path), *SHORT, "--policy", "gds", "--json", str(tmp_path / "out.json")]
    assert simulate(*command).exit_code == 0
    document = json.loads((tmp_path / "out.json").read_text())
    document["results"][0] |= changed
    (tmp_path / "out.json").write_text(json.dumps(document))
    before = (tmp_path / "out.json").read_bytes()
    found = simulate(*command)
    assert (found.exit_code, found.stderr.count("\n")) == (1, 1)
    assert "out.json: not a results file of this version" in found.stderr
    assert (tmp_path / "out.json").read_bytes() == before
    assert not (tmp_path / "out.json.partial").exists()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[]", b"[" * 100_000, b"", b'{"setup": []}'])
def test_other_files_are_not_written_over(content: bytes, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_bytes(content)
    found = simulate(make_traces(tmp_path), *SHORT, "--policy", "gds", "--json", str(out))
    assert (found.exit_code, found.stderr.count("\n")) == (1, 1)
    assert "out.json: not a results file of this version" in found.stderr
    assert out.read_bytes() == content


def test_a_config_as_geometry(tmp_path: Path) -> None:
    from tests.simulate.test_presets import QWEN3_NEXT

    model = tmp_path / "my-model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(QWEN3_NEXT))
    options = ("--geometry", str(model), "--memory", "1", "--tp", "2", "--cost", "1e-5", "0")
    found = simulate(
        make_traces(tmp_path), *SHORT[:4], "--sessions", "1", "--seeds", "1", "--policy", "gds", *options
    )
    assert found.exit_code == 0
    assert "my-model: 82 blocks of 1,056 tokens, 3 a checkpoint" in found.stdout


@pytest.mark.timeout(120)
def test_real_traces(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    found = simulate(
        str(shared_traces("dev")), "--sessions", "16", "--seeds", "1", "--minutes", "20", "--warmup", "5",
        "--policy", "flashstate,vllm-sparse", "--json", str(out),
    )  # fmt: skip
    assert found.exit_code == 0
    assert "370 sessions of 26,428 requests (left out: 125 linked to another)" in found.stdout
    rates = {
        policy: row["resumed_tokens"] / row["prompt_tokens"] for (policy, _, _), row in results(out).items()
    }
    assert rates["flashstate"] > rates["vllm-sparse"] > 0.9


def test_a_terminal_that_cannot_show_a_sign_gets_another(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "flashstate.cli",
        "simulate",
        make_traces(tmp_path),
        *SHORT,
        "--blocks",
        "20",
    ]
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    found = subprocess.run(command, env=ascii_only, capture_output=True, text=True, timeout=100, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    assert "Hit rate" in found.stdout
