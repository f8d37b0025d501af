"""The demo with fake servers: python -m tests.demo.fake_demo FAULTS ARG..."""

from __future__ import annotations

from flashstate.demo import command, run
from tests.demo.fake_engines import run_with_fakes

if __name__ == "__main__":
    run_with_fakes(command.demo, run)
