"""A command with fake servers in place of engines, to be run as a program that can be sent signals."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from unittest.mock import patch

import typer

from tests.demo.processes import fake_command


def run_with_fakes(command: Callable[..., None], starts: ModuleType) -> None:
    """Runs `command` by the arguments FAULTS ARG... `starts`: the module that starts its servers.

    FAULTS: one a start, "FAULT:N", joined with commas.
    """
    faults = sys.argv.pop(1).split(",")

    def serve(
        engine: object, model: object, family: object, blocks: int, most_tokens: int, port: int, *_: int
    ) -> list[str]:
        fault, _, number = (faults.pop(0) if faults else "none").partition(":")
        return fake_command(port, fault, int(number or 0))

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    with patch.object(starts, "serve_command", serve):
        app()
