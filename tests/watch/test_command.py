from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from typer.testing import CliRunner

from flashstate.cli import app
from tests.watch.server import Counts, free_port, serving


def watch(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["watch", *arguments])
    return found.exit_code, found.stdout, found.stderr


def row(text: str, label: str) -> str:
    """The last line that starts so, without its label."""
    return [line.removeprefix(label).strip() for line in text.splitlines() if line.startswith(label)][-1]


@contextmanager
def load(counts: Counts) -> Iterator[None]:
    """The server answers requests meanwhile."""

    def run() -> None:
        while not over.wait(0.02):
            counts.serve(1000, 600, 100, 0.25, capacity=50)

    over = Event()
    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_one_look_at_two_servers() -> None:
    ours, stock = Counts(), Counts(ours=False)
    with serving(ours) as a, serving(stock) as b, load(ours), load(stock):
        code, text, errors = watch(a, f"{b}/metrics", "--once", "--interval", "0.3", "--gpus", "2")
    assert (code, errors) == (0, "")
    assert row(text, "Hit rate").split() == ["60.0", "%", "60.0", "%"]
    assert row(text, "TTFT, mean").split() == ["0.25", "s", "0.25", "s"]
    assert row(text, "Running / waiting").split() == ["4", "/", "2", "4", "/", "2"]
    assert row(text, "KV in use").split() == ["60.0", "%", "60.0", "%"]
    missed = row(text, "Missed: capacity").split()
    assert float(missed[0].replace(",", "")) > 0 and missed[1] == "-"
    assert row(text, "Profit/GPU-hour").count("$") == 2
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_server_that_is_away_is_shown_so() -> None:
    broken = Counts()
    broken.status = 503
    with serving(Counts()) as a, serving(broken) as b:
        code, text, _ = watch(a, b, f"127.0.0.1:{free_port()}", "--once", "--interval", "0.1")
    assert code == 1
    flat = " ".join(text.split())
    assert "away: HTTP 503" in flat and "Connection refused" in flat


def test_it_comes_back_and_works_in_a_pipe(tmp_path: Path) -> None:
    """The real command, its output in a file; the server goes away and comes back under the same address."""
    port, counts = free_port(), Counts()
    seen = tmp_path / "seen"
    with seen.open("w") as out:
        command = [
            sys.executable,
            "-m",
            "flashstate",
            "watch",
            f"127.0.0.1:{port}",
            "--interval",
            "0.1",
            "--window",
            "1",
        ]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            with serving(counts, port), load(counts):
                until(seen, "60.0 %")
            until(seen, "refused")
            length = seen.stat().st_size
            with serving(counts, port), load(counts):
                until(seen, "60.0 %", length)
        finally:
            process.terminate()
            process.wait(10)
    text = seen.read_text()
    assert "\x1b" not in text
    assert "Traceback" not in text


def until(path: Path, text: str, start: int = 0) -> None:
    """Waits for `text` to be written after the first `start` bytes."""
    deadline = time.monotonic() + 30
    while text not in path.read_text()[start:]:
        assert time.monotonic() < deadline, f"no {text!r} in {path.read_text()[-2000:]}"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["a", "b", "c", "d"], "4 servers: 3 at most; watch the others in another terminal"),
        (["ftp://a"], "ftp://a: not a server's address: give one such as http://localhost:8000"),
        (["a:99999999"], "a:99999999: not a server's address: give one such as http://localhost:8000"),
        (["a", "--interval", "0"], "--interval 0: must be from 0.1 to 3600 seconds"),
        (["a", "--window", "1"], "--window 1: must be from --interval, 2, to 86400 seconds"),
        (["a", "--gpus", "0"], "--gpus 0: must be from 1 to 1,000,000, the GPUs of one server"),
        (["a", "--preset", "x"], "preset 'x': unknown"),
    ],
)
def test_what_cannot_be_watched(arguments: list[str], reason: str) -> None:
    code, output, errors = watch(*arguments)
    assert (code, output, errors.count("\n")) == (1, "", 1)
    assert errors.startswith(f"flashstate: {reason}")
