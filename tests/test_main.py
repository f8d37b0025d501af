from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flashstate.cli import app
from flashstate.urls import is_server

INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "{name}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from flashstate.__main__ import main
sys.argv = ["flashstate", "--version"]
main()
"""


@pytest.mark.parametrize("name", ["flashstate.cli", "typer", "flashstate.simulate.sweep"])
def test_ctrl_c_among_the_imports_is_quiet(name: str) -> None:
    code = INTERRUPTED_IMPORT.format(name=name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_module_runs_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flashstate", "--version"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("flashstate ")


@pytest.mark.parametrize("command", ["size", "doctor"])
def test_a_model_that_cannot_be_read_is_one_line(command: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, [command, str(tmp_path / "none")])
    assert (found.exit_code, found.stdout, found.stderr.count("\n")) == (1, "", 1)
    assert found.stderr.startswith("flashstate: ") and "none" in found.stderr


@pytest.mark.parametrize(
    ("url", "is_one"),
    [("http://localhost:8000", True), ("https://a/b", True), ("http://", False), ("localhost:8000", False),
     ("ftp://a", False), ("http://a:b", False), ("", False)],
)  # fmt: skip
def test_an_address_has_a_host(url: str, is_one: bool) -> None:
    assert is_server(url) == is_one
