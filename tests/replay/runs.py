"""Runs of the command against a server process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from flashstate.cli import app

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "tests" / "traces" / "small.json"


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class ServerProcess:
    """A fake server in its own process. Use as a context."""

    fault: str = "none"
    first: int = 2
    """The first two requests are the command's probes."""
    delay_s: float = 0.0
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        arguments = [str(self.port), self.fault, str(self.first), str(self.delay_s)]
        command = [sys.executable, "-m", "tests.replay.fake_server", *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment())
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"up\n"

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def arguments(url: str, records: Path, *more: str, trace: Path | None = TRACE) -> list[str]:
    """A quick run: two sessions of a small trace for a second or two."""
    quick = [
        "--sessions",
        "2",
        "--warmup",
        "0.3",
        "--measure",
        "1.5",
        "--time-scale",
        "1000",
        "--token-scale",
        "50",
    ]
    traces = [str(trace)] if trace is not None else []
    return ["replay", *traces, "--url", url, "--records", str(records), *quick, *more]


def replay(url: str, records: Path, *more: str, trace: Path | None = TRACE) -> tuple[int, str, str]:
    """Runs the command in this process: exit code, output, errors."""
    result = CliRunner().invoke(app, arguments(url, records, *more, trace=trace))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def start(url: str, records: Path, *more: str) -> subprocess.Popen[str]:
    """Runs it in a process of its own, to be sent signals."""
    command = [sys.executable, "-m", "flashstate", *arguments(url, records, *more)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
    )


def wait_for(records: Path, requests: int, limit_s: float = 60.0) -> None:
    """Until so many requests are in the file."""
    deadline_s = time.monotonic() + limit_s
    while not records.exists() or records.read_text().count('"request"') < requests:
        assert time.monotonic() < deadline_s, "no records"
        time.sleep(0.05)


def events(records: Path, kind: str) -> list[dict[str, Any]]:
    """Every line of a kind; all lines must be whole JSON."""
    found = [json.loads(line) for line in records.read_text().splitlines()]
    return [event for event in found if event.get("event") == kind]
