"""Whole comparisons of fake servers: everything but the engines is real."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flashstate.cli import app
from flashstate.replay.run_log import read_events, read_head
from tests.demo.processes import ROOT, all_gone, children_in, children_of, command_of, fake_environment
from tests.replay.runs import ServerProcess

TRACE = ROOT / "tests" / "traces" / "small.json"
QUICK = ("--warmup", "0.3", "--measure", "1.2", "--time-scale", "1000", "--token-scale", "50")


def start(out: Path, *arguments: str, faults: str = "none") -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "tests.bench.fake_bench", faults, str(TRACE), "--out", str(out), *QUICK]
    return subprocess.Popen(
        [*program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env=fake_environment() | {"COLUMNS": "200"},
    )  # fmt: skip


def run(out: Path, *arguments: str, faults: str = "none") -> tuple[int, str, str]:
    process = start(out, *arguments, faults=faults)
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not (path.exists() and any(path.iterdir())):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)


def document(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "bench.json").read_text())
    return found


def children(out: Path) -> list[int]:
    return [pid for log in (out / "logs").glob("*.log") for pid in children_in(log)]


def test_engines_in_turn_at_each_load(tmp_path: Path) -> None:
    code, output, errors = run(
        tmp_path, "--engines", "stock,flashstate", "--sessions", "2,1", "--repeat", "2"
    )
    assert (code, errors) == (0, "")
    found = document(tmp_path)
    order = [(r["key"]["engine"], r["key"]["sessions"], r["key"]["repeat"]) for r in found["runs"]]
    assert order == [
        ("stock", 1, 0), ("stock", 2, 0), ("flashstate", 1, 0), ("flashstate", 2, 0),
        ("flashstate", 2, 1), ("flashstate", 1, 1), ("stock", 2, 1), ("stock", 1, 1),
    ]  # fmt: skip
    for shown in ("prompt throughput", "flashstate / stock", "hit rate"):
        assert shown in output
    ratio = found["findings"]["ratios"]["flashstate / stock"]["2"]["prompt_tokens_per_s"]
    assert ratio["repeats"] == 2 and ratio["low"] <= ratio["mean"] <= ratio["high"]
    assert found["findings"]["stock_best"] == {"1": "stock", "2": "stock"}
    # Emptied between the loads, not before the first.
    assert [log.read_text().count("cache emptied") for log in (tmp_path / "logs").glob("*.log")] == [1] * 4
    assert "</html>" in (tmp_path / "report.html").read_text()
    assert all_gone(children(tmp_path))


def test_a_repeat_has_the_same_agents_for_every_engine_and_others_than_the_last(tmp_path: Path) -> None:
    code, _, errors = run(
        tmp_path, "--engines", "stock,flashstate", "--sessions", "2", "--repeat", "2", "--seed", "5"
    )
    assert (code, errors) == (0, "")
    seeds, asked = {}, {}
    for path in (tmp_path / "records").glob("*.jsonl"):
        seeds[path.stem] = read_head(path)["parameters"]["seed"]
        # Which play a session is in, and where it begins.
        requests = [event for event in read_events(path) if event["event"] == "request"]
        asked[path.stem] = min((r["start_s"], r["session"], r["turn"], r["prompt_tokens"]) for r in requests)[
            1:
        ]
    assert seeds == {"stock.2.0": 5, "flashstate.2.0": 5, "stock.2.1": 6, "flashstate.2.1": 6}
    assert asked["stock.2.0"] == asked["flashstate.2.0"]
    assert asked["stock.2.1"] == asked["flashstate.2.1"]


def test_the_same_command_goes_on_and_may_grow(tmp_path: Path) -> None:
    assert run(tmp_path, "--engines", "stock", "--sessions", "1", "--repeat", "1")[0] == 0
    first = document(tmp_path)["runs"]
    grown = ("--engines", "stock,flashstate", "--sessions", "1,2", "--repeat", "1")
    assert run(tmp_path, *grown)[0] == 0
    runs = document(tmp_path)["runs"]
    assert runs[0] == first[0] and len(runs) == 4
    begun = time.monotonic()
    code, output, errors = run(tmp_path, *grown)
    assert (code, errors) == (0, "") and "flashstate / stock" in output
    assert document(tmp_path)["runs"] == runs and time.monotonic() - begun < 30
    code, _, errors = run(tmp_path, *grown, "--cache", "900")
    assert code == 1 and "is of other options (blocks 844 there, 900 here)" in errors


def test_a_server_that_dies_ends_it_and_the_rest_is_made_later(tmp_path: Path) -> None:
    both = ("--engines", "stock,flashstate", "--sessions", "2", "--repeat", "1")
    code, output, errors = run(tmp_path, *both, faults="none,die-after:6")
    assert code == 1 and "flashstate: the server died (killed by SIGKILL)" in errors
    assert "Traceback" not in errors and "goes on with what is missing" in errors
    assert [run["key"]["engine"] for run in document(tmp_path)["runs"]] == ["stock"]
    assert "hit rate" in output
    assert run(tmp_path, *both)[0] == 0
    assert [run["key"]["engine"] for run in document(tmp_path)["runs"]] == ["stock", "flashstate"]
    assert all_gone(children(tmp_path))


def test_a_run_whose_engine_died_is_not_kept_though_its_server_answers(tmp_path: Path) -> None:
    both = ("--engines", "stock,flashstate", "--sessions", "2", "--repeat", "1")
    code, _, errors = run(tmp_path, *both, faults="none,sick:20")
    assert code == 1 and "flashstate: the engine died" in errors and "Traceback" not in errors
    assert [run["key"]["engine"] for run in document(tmp_path)["runs"]] == ["stock"]
    assert all_gone(children(tmp_path))


def test_a_second_comparison_keeps_out_of_the_folder(tmp_path: Path) -> None:
    first = start(tmp_path, "--engines", "stock", "--sessions", "2", "--repeat", "1", "--measure", "3")
    wait_for(tmp_path / "logs", first)
    code, _, errors = run(tmp_path, "--engines", "flashstate", "--sessions", "2", "--repeat", "1")
    assert code == 1 and f"--out {tmp_path}: another comparison is writing there" in errors
    _, errors = first.communicate(timeout=60)
    assert (first.returncode, errors) == (0, "")
    assert [run["key"]["engine"] for run in document(tmp_path)["runs"]] == ["stock"]


def test_what_is_in_the_folder_stays_in_its_figures_and_is_checked(tmp_path: Path) -> None:
    one = ("--sessions", "2", "--repeat", "1")
    assert run(tmp_path, "--engines", "stock,flashstate", *one)[0] == 0
    code, output, _ = run(tmp_path, "--engines", "flashstate", "--sessions", "1", "--repeat", "1")
    found = document(tmp_path)
    assert code == 0 and "flashstate / stock" in output
    assert found["options"]["engines"].keys() == {"stock", "flashstate"}
    assert found["findings"]["ratios"]["flashstate / stock"]["2"]
    cost = tmp_path / "cost.json"
    cost.write_text(
        json.dumps({"kind": "flashstate prefill cost", "version": 1, "coefficients": {"d": 1e-4, "e": 1e-3}})
    )
    code, _, errors = run(tmp_path, "--engines", "flashstate", *one, "--prefill-cost", str(cost))
    assert code == 1 and "is of other options (prefill_cost None there, [0.0001, 0.001] here)" in errors
    code, _, errors = run(tmp_path, "--engines", "flashstate", *one, "--warmup", "0.4")
    assert code == 1 and "is of other options (warmup_s 0.3 there, 0.4 here)" in errors


def test_a_server_that_has_changed_is_noticed_after_a_detour(tmp_path: Path) -> None:
    with ServerProcess() as one, ServerProcess() as other:
        for engines, code in ((f"mine={one.url}", 0), (f"its={other.url}", 0), (f"mine={other.url}", 1)):
            result = CliRunner().invoke(
                app,
                ["bench", str(TRACE), "--out", str(tmp_path), *QUICK, "--engines", engines, "--sessions", "1",
                 "--repeat", "1"],
            )  # fmt: skip
            assert result.exit_code == code, result.output
    assert "is of other options (mine" in result.stderr


def test_a_server_that_cannot_be_used_is_named_before_any_is_measured(tmp_path: Path) -> None:
    both = "stock,gone=http://somebody:secret@127.0.0.1:9"
    code, output, errors = run(tmp_path, "--engines", both, "--sessions", "1", "--repeat", "1")
    assert code == 1 and "gone: http://127.0.0.1:9: cannot be reached" in errors
    assert "secret" not in output + errors and not (tmp_path / "logs").exists()


def test_no_password_is_written_down(tmp_path: Path) -> None:
    with ServerProcess() as server:
        url = server.url.replace("://", "://somebody:secret@")
        result = CliRunner().invoke(
            app,
            ["bench", str(TRACE), "--out", str(tmp_path), *QUICK, "--engines", f"mine={url}", "--sessions", "1",
             "--repeat", "1"],
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "secret" not in result.output
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]


@pytest.mark.parametrize(
    "document",
    ['{"options": [], "runs": []}', '{"options": "x", "runs": []}', "{}", "[]", "null", '{"options": {', ""],
)
def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path, document: str) -> None:
    (tmp_path / "bench.json").write_text(document)
    code, _, errors = run(tmp_path, "--engines", "stock", "--sessions", "1", "--repeat", "1")
    assert code == 1 and "bench.json: is not ours" in errors and "Traceback" not in errors
    assert (tmp_path / "bench.json").read_text() == document


@pytest.mark.parametrize(
    "numbers", [["TERM", "TERM"], ["HUP", "HUP"], ["INT", "TERM"], ["INT", "INT", "INT"]]
)
def test_nothing_is_left_after_several_signals_though_the_server_hangs(
    tmp_path: Path, numbers: list[str]
) -> None:
    arguments = ("--engines", "stock", "--sessions", "2", "--repeat", "1", "--measure", "9")
    process = start(tmp_path, *arguments, faults="deaf")
    wait_for(tmp_path / "records", process)
    time.sleep(0.5)
    for number in numbers:
        process.send_signal(getattr(signal, f"SIG{number}"))
        time.sleep(0.5)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in errors
    assert all_gone(children(tmp_path))


def test_a_server_ends_with_a_comparison_that_is_killed_outright(tmp_path: Path) -> None:
    process = start(tmp_path, "--engines", "stock", "--sessions", "2", "--repeat", "1", "--measure", "9")
    wait_for(tmp_path / "records", process)
    servers = [pid for pid in children_of(process.pid) if "fake_server" in command_of(pid)]
    assert servers
    process.kill()
    process.communicate(timeout=60)
    assert all_gone(servers)


def test_a_hangup_that_nohup_switched_off_stays_off(tmp_path: Path) -> None:
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start(tmp_path, "--engines", "stock", "--sessions", "2", "--repeat", "1")
    finally:
        signal.signal(signal.SIGHUP, ignored)
    wait_for(tmp_path / "logs", process)
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_is_done(tmp_path: Path, number: signal.Signals) -> None:
    both = ("--engines", "stock,flashstate", "--sessions", "2", "--repeat", "1", "--measure", "3")
    process = start(tmp_path, *both)
    deadline = time.monotonic() + 60
    while not (tmp_path / "bench.json").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted: the same command goes on" in errors
    assert "Traceback" not in errors and "stock" in output
    assert [run["key"]["engine"] for run in document(tmp_path)["runs"]] == ["stock"]
    assert all_gone(children(tmp_path))


def test_a_running_server_beside(tmp_path: Path) -> None:
    with ServerProcess() as server:
        result = CliRunner().invoke(
            app,
            ["bench", str(TRACE), "--out", str(tmp_path), *QUICK, "--engines", f"mine={server.url}",
             "--sessions", "1,2", "--repeat", "1"],
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    runs = document(tmp_path)["runs"]
    found = [(r["key"]["engine"], r["key"]["sessions"], r["busy"]) for r in runs]
    assert found == [("mine", 1, None), ("mine", 2, None)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--engines", "stok"), "--engines stok: unknown; choose of stock, "),
        (("--engines", "flashstate:best"), "policies: "),
        (("--engines", ","), "--engines: names none"),
        (("--engines", "stock=http://x"), "choose another"),
        (("--engines", "a=http://x,a=http://y"), "two servers are called a"),
        (("--sessions", "8,x"), "--sessions x: must be numbers"),
        (("--sessions", "9" * 5000), "--sessions 999"),
        (("--token-ids", "0:" + "9" * 5000), "--token-ids 0:999"),
        (("--engines", "a/b=http://x,a-b=http://y"), "two names give the same files"),
        (("--engines", "http://"), "must be like http://localhost:8000"),
        (("--engines", "mine=http://u:secret@:99999"), "--engines mine=http://:99999: must be like"),
        (("--chunk", "159"), "--chunk 159: must be from 160 (a block)"),
        (("--chunk", "100000"), "--chunk 100000: must be from 160 (a block) to "),
        (("--sessions", "0"), "--sessions 0: must be numbers from 1"),
        (("--repeat", "0"), "--repeat 0: must be from 1"),
        (("--cache", "0"), "--cache 0: must be 1 block"),
        (("--cache", "2"), "--cache 2: the longest request, "),
        (("--model", "kda"), "stock vLLM cannot serve it"),
        (("--measure", "0"), "--measure 0: must be above 0"),
        (("--seed", "4294967295", "--repeat", "2"), "--seed 4294967296: must be"),
        (("--prefill-cost", "nowhere.json"), "nowhere.json: No such file"),
        (("--token-scale", "0.001"), "give a larger --token-scale"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = CliRunner().invoke(app, ["bench", str(TRACE), "--out", str(tmp_path / "out"), *arguments])
    assert result.exit_code == 1
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
