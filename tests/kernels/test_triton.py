"""The Triton kernels: their interpreter tests in a process of their own, and what a caller may do wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from flashstate.kernels.base import Recurrence
from flashstate.kernels.triton import ChunkTiles, chunk_forward, default_tiles
from tests.kernels.make import make_inputs

ROOT = Path(__file__).parents[2]


def interpreter_environment() -> dict[str, str]:
    return os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("chosen", "least"), [("not slow", 30), pytest.param("slow", 4, marks=pytest.mark.slow)]
)
def test_in_the_interpreter(chosen: str, least: int) -> None:
    options = ["-q", "-p", "no:cacheprovider", "-m", chosen]
    command = [sys.executable, "-m", "pytest", *options, "tests/kernels/triton_interpreted.py"]
    run = subprocess.run(command, cwd=ROOT, env=interpreter_environment(), capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    passed = re.search(r"\b(\d+) passed\b", run.stdout)
    assert passed and int(passed[1]) >= least and "skipped" not in run.stdout


def test_a_cpu_without_the_interpreter_is_refused() -> None:
    with pytest.raises(RuntimeError, match="v is on cpu: must be on CUDA, or set TRITON_INTERPRET=1"):
        chunk_forward(make_inputs(Recurrence.KDA))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key_dim": 48}, "key_dim is 48: must be a power of two from 16 to 256"),
        (
            {"value_dim": 16, "dtype": torch.bfloat16},
            "value_dim is 16: must be a multiple of the tiles' 32 values",
        ),
        ({"dtype": torch.float16}, "v is torch.float16: must be torch.float32 or torch.bfloat16"),
    ],
)
def test_what_no_kernel_fits_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chunk_forward(make_inputs(Recurrence.GDN, (8,), **change))


def test_the_contract_is_checked_first() -> None:
    inputs = make_inputs(Recurrence.GDN, (8,))
    with pytest.raises(ValueError, match=r"beta is torch\.float64"):
        chunk_forward(replace(inputs, beta=inputs.beta.double()))


@pytest.mark.parametrize("name", ["tokens", "values", "keys"])
def test_tiles_of_another_size_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"tile of 48 {name}: must be 16, 32, 64 or 128"):
        ChunkTiles(**{"tokens": 16, name: 48})


@pytest.mark.parametrize("recurrence", list(Recurrence))
def test_the_grid_does_not_depend_on_the_type(recurrence: Recurrence) -> None:
    tokens = {default_tiles(recurrence, kind).tokens for kind in (torch.bfloat16, torch.float32)}
    assert tokens == {default_tiles(recurrence).tokens}
