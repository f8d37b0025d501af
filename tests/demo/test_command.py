from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from flashstate.demo import command
from flashstate.replay.run_log import measured_records
from tests.demo.processes import ROOT, all_gone, children_in, fake_environment
from tests.report.test_report import check_schema

SMALL_TRACE = ROOT / "tests" / "traces" / "small.json"
ENGINES = ("stock", "stock-match-unit-16", "flashstate")


def start(out: Path, *arguments: str, faults: str = "none") -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "tests.demo.fake_demo", faults, "--out", str(out), *arguments]
    return subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env=fake_environment() | {"COLUMNS": "120"},
    )  # fmt: skip


def run(out: Path, *arguments: str, faults: str = "none") -> tuple[int, str, str]:
    process = start(out, *arguments, faults=faults)
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


def wait_for_child(log: Path) -> None:
    deadline = time.monotonic() + 60
    while not children_in(log) and time.monotonic() < deadline:
        time.sleep(0.05)


def children(out: Path) -> list[int]:
    return [pid for log in (out / "logs").glob("*.log") for pid in children_in(log)]


def test_a_whole_demo(tmp_path: Path) -> None:
    code, output, errors = run(tmp_path, "--quick", "--sessions", "2")
    assert (code, errors) == (0, "")
    for shown in ("Hit rate", "TTFT p50 / p90", "stock-best", "flashstate", "FlashState against stock-best"):
        assert shown in output
    document = json.loads((tmp_path / "results.json").read_text())
    check_schema(document)
    assert list(document["engines"]) == ["stock", "stock-best", "flashstate"]
    assert set(document["ratios"]) == {"flashstate/stock", "flashstate/stock-best"}
    assert document["workload"]["stock_best"] in ENGINES[:2]
    assert document["workload"]["missing"] == []
    records = [measured_records(tmp_path / "records" / f"{name}.2.0.jsonl") for name in ENGINES]
    asked = [sorted((r.session, r.turn, r.kind, r.prompt_tokens) for r in engine) for engine in records]
    assert len(asked[0]) == document["workload"]["requests"]
    assert asked[0] == asked[1] == asked[2]
    # The fake server has a perfect cache.
    assert document["engines"]["flashstate"]["recomputed_tokens"] == 0
    assert "</html>" in (tmp_path / "report.html").read_text()
    assert all_gone(children(tmp_path))


def test_the_demo_is_a_preset_of_bench(tmp_path: Path) -> None:
    assert run(tmp_path / "demo", "--sessions", "1", "--quick", "--seed", "3")[0] == 0
    mine = json.loads((tmp_path / "demo" / "bench.json").read_text())
    program = [sys.executable, "-m", "tests.bench.fake_bench", "none", "--out", str(tmp_path / "bench")]
    cache = str(mine["options"]["blocks"])
    done = subprocess.run(
        [*program, "--workload", "agents", "--engines", "stock,stock-match-unit-16,flashstate", "--sessions", "1",
         "--repeat", "1", "--turns", "5", "--seed", "3", "--cache", cache],
        capture_output=True, text=True, cwd=ROOT, env=fake_environment(), timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    theirs = json.loads((tmp_path / "bench" / "bench.json").read_text())
    assert mine["options"] == theirs["options"]

    def work(runs: list[dict[str, Any]]) -> list[tuple[object, ...]]:
        return [(r["key"], r["summary"]["requests"], r["summary"]["prompt_tokens"]) for r in runs]

    assert work(mine["runs"]) == work(theirs["runs"])


def test_a_demo_begins_anew_but_over_no_one_else_s_runs(tmp_path: Path) -> None:
    small = ("--quick", "--sessions", "1")
    assert run(tmp_path, *small, "--seed", "2")[0] == 0
    first = json.loads((tmp_path / "bench.json").read_text())
    code, _, errors = run(tmp_path, *small, faults="die-at-once")
    assert code == 1 and "no room for the model" in errors
    # Nothing of the first stands beside what the second has not measured.
    assert not {"bench.json", "results.json", "report.html"} & {path.name for path in tmp_path.iterdir()}
    theirs = json.dumps({key: value for key, value in first.items() if key != "preset"})
    for text in (theirs, "my own notes", "[]"):
        (tmp_path / "bench.json").write_text(text)
        code, _, errors = run(tmp_path, *small)
        assert (code, errors) == (
            1, f"flashstate: {tmp_path / 'bench.json'}: is not a demo's; name another folder with --out\n"
        )  # fmt: skip
        assert (tmp_path / "bench.json").read_text() == text


def test_a_report_that_cannot_be_written_hides_neither_figures_nor_the_first_error(tmp_path: Path) -> None:
    process = start(tmp_path, "--quick", "--sessions", "1", faults="none,none,never-up")
    wait_for_child(tmp_path / "logs" / "flashstate.0.log")
    (tmp_path / "results.json").mkdir()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=90)
    assert process.returncode == 130
    assert errors.startswith("flashstate: interrupted\n") and errors.count("\n") == 2
    assert "stock-best" in output and "figures:" not in output


def test_what_stands_in_the_way_is_named_before_a_server_starts(tmp_path: Path) -> None:
    (tmp_path / "results.json").mkdir()
    code, _, errors = run(tmp_path, "--quick", "--sessions", "1")
    assert code == 1
    assert errors.startswith(f"flashstate: {tmp_path / 'results.json'}: ") and errors.count("\n") == 1
    assert not (tmp_path / "logs").exists()


def test_full_runs_every_stock_setting(tmp_path: Path) -> None:
    code, _, errors = run(tmp_path, "--full", "--sessions", "1", "--measure", "0.5")
    assert (code, errors) == (0, "")
    runs = json.loads((tmp_path / "results.json").read_text())["workload"]["runs"]
    assert list(runs) == [
        "stock",
        "stock-match-unit-16",
        "stock-dense",
        "stock-match-unit-16-dense",
        "flashstate",
    ]


def test_traces_for_a_time(tmp_path: Path) -> None:
    code, output, errors = run(
        tmp_path, "--trace", str(SMALL_TRACE), str(SMALL_TRACE), "--token-scale", "2", "--time-scale", "100",
        "--sessions", "2", "--warmup", "0.3", "--measure", "1.5",
    )  # fmt: skip
    assert (code, errors) == (0, "")
    assert "recorded traces" in output
    workload = json.loads((tmp_path / "results.json").read_text())["workload"]
    assert (workload["kind"], workload["traces"], workload["token_scale"]) == (
        "traces",
        ["small", "small"],
        2.0,
    )
    assert workload["runs"]["stock"]["measured_s"] == pytest.approx(1.5, abs=0.5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_demo_keeps_what_it_has_and_leaves_nothing_running(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = start(tmp_path, "--quick", "--sessions", "2", faults="none,never-up")
    wait_for_child(tmp_path / "logs" / "stock-match-unit-16.0.log")
    process.send_signal(number)
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 130
    first, second_line = errors.strip().splitlines()
    assert first == "flashstate: interrupted"
    assert second_line.endswith("bench.json has stock; missing: stock-match-unit-16, flashstate")
    document = json.loads((tmp_path / "results.json").read_text())
    check_schema(document)
    assert list(document["engines"]) == ["stock"]
    assert document["workload"]["missing"] == ["stock-match-unit-16", "flashstate"]
    pids = children(tmp_path)
    assert len(pids) == 2
    assert all_gone(pids)


def test_a_server_that_dies_half_way_stops_the_demo(tmp_path: Path) -> None:
    code, _, errors = run(tmp_path, "--quick", "--sessions", "2", faults="none,none,die-after:4")
    assert code == 1
    assert errors.startswith("flashstate: flashstate: the server died (killed by SIGKILL)\n")
    assert "  Segmentation fault\n" in errors
    assert errors.rstrip().endswith("has stock, stock-match-unit-16; missing: flashstate")
    assert "Traceback" not in errors
    document = json.loads((tmp_path / "results.json").read_text())
    assert list(document["engines"]) == ["stock", "stock-best"]
    assert all_gone(children(tmp_path))


def test_a_busy_port_is_refused(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, _, errors = run(tmp_path, "--port", str(port))
    assert code == 1
    assert errors.startswith(f"flashstate: port {port} on 127.0.0.1: Address already in use")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--model", "gpt"], "--model gpt: choose one of gdn, mamba2"),
        (["--cache", "huge"], "--cache huge: choose small, large, or a number of blocks"),
        (["--cache", "9" * 5000], "--cache 9{40}: choose small, large, or a number of blocks"),
        (["--cache", "3"], r"--cache 3: the longest request, [\d,]+ tokens, needs \d+ blocks of 160 tokens"),
        (["--sessions", "0"], "--sessions 0: must be from 1 to 10,000"),
        (["--seed", "-1"], "--seed -1: must be from 0 to 4294967295"),
        (["--measure", "0"], "--measure 0: must be above 0"),
        (["--measure", "nan"], "--measure nan: must be above 0"),
        (["--warmup", "-1"], "--warmup -1: must be 0 or more"),
        (["--port", "70000"], "--port 70000: must be from 1 to 65535"),
        (["--token-scale", "3"], "--token-scale and --time-scale scale traces: name one with --trace"),
        (["--trace", str(SMALL_TRACE), "--time-scale", "-2"], "--time-scale -2: must be above 0"),
        (["--trace", "nowhere.json"], "--trace nowhere.json: No such file or directory"),
        (["--trace", "pyproject.toml"], r"--trace pyproject.toml: not JSON"),
        (["--trace", str(SMALL_TRACE), "--token-scale", ".001"], r"the longest request has [\d,]+ tokens, the model"),
        (["--quick", "--full"], "--quick and --full: choose one"),
    ],
)  # fmt: skip
def test_a_bad_option_is_one_line(tmp_path: Path, arguments: list[str], line: str) -> None:
    app = typer.Typer()
    app.command()(command.demo)
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["--out", str(tmp_path / "out"), *arguments])
    assert result.exit_code == 1
    assert re.match(f"flashstate: {line}", result.stderr), result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, errors = run(tmp_path / "file" / "out")
    assert code == 1
    assert errors.startswith("flashstate: ")
    assert errors.count("\n") == 1
