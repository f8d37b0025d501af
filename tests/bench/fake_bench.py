"""`flashstate bench` with fake servers: python -m tests.bench.fake_bench FAULTS ARG..."""

from __future__ import annotations

from flashstate.bench import command, run
from tests.demo.fake_engines import run_with_fakes

if __name__ == "__main__":
    run_with_fakes(command.bench, run)
