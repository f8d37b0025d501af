"""`flashstate bench` with fake servers in place of engines, as a program of its own, so that it can be sent signals.

python -m tests.bench.fake_bench FAULTS ARG...    FAULTS: one a start, "FAULT:N", joined with commas
"""

from __future__ import annotations

import sys
from unittest.mock import patch

import typer

from flashstate.bench import command, run
from tests.demo.processes import fake_command


def main(faults: list[str]) -> None:
    def serve(
        engine: object, model: object, family: object, blocks: int, most_tokens: int, port: int
    ) -> list[str]:
        fault, _, number = (faults.pop(0) if faults else "none").partition(":")
        return fake_command(port, fault, int(number or 0))

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command.bench)
    with patch.object(run, "serve_command", serve):
        app()


if __name__ == "__main__":
    faults = sys.argv.pop(1)
    main(faults.split(","))
