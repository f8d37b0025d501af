"""Prefills with known coefficients, and the command."""

from __future__ import annotations

import numpy as np
from typer.testing import CliRunner, Result

from flashstate.cli import app
from flashstate.fit.measure import Prefill
from flashstate.fit.plan import plan
from flashstate.fit.regression import PrefillTime

KNOWN = PrefillTime(d=2e-5, e=2e-4, request_s=0.01, resume_s=0.005, prompt_token_s=2e-7)


def make_prefills(
    time: PrefillTime = KNOWN,
    *,
    longest: int = 65_536,
    rounds: int = 7,
    noise: float = 0.0,
    outliers: float = 0.0,
    warm: bool = True,
) -> list[Prefill]:
    """What `measure` would find: relative noise (a standard deviation), and a share that took three times as long."""
    random = np.random.default_rng(7)
    spans = [
        (start, stop, chain.held_out)
        for chain in plan(longest)
        for start, stop in ((0, chain.first), (chain.first - 1, chain.then))
        if stop is not None and (warm or start == 0)
    ]
    prefills = []
    for start, stop, held_out in spans * rounds:
        (seconds,) = time.seconds(np.array([start]), np.array([stop]))
        factor = np.exp(noise * random.standard_normal()) * (3 if random.random() < outliers else 1)
        prefills.append(Prefill(start, stop, float(seconds * factor), held_out))
    return prefills


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "150", "NO_COLOR": "1"})


def refusal(*arguments: object) -> str:
    """The one line that a refused command prints."""
    found = run(*arguments)
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.count("\n") == 1
    return found.stderr.removeprefix("flashstate: ").strip()
