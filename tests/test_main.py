from __future__ import annotations

import subprocess
import sys

import pytest

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
