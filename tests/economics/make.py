"""Prices and results files, made up or made by the commands that write them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

from typer.testing import CliRunner, Result

from flashstate.cli import app
from flashstate.economics.prices import Prices
from flashstate.report.engine import EngineResult, Percentiles
from flashstate.report.results import Results
from flashstate.traces.parquet_writer import write_parquet
from tests.simulate.sessions import make_sessions

PRESET: Mapping[str, object] = {
    "date": "2026-11-30",
    "source": "made up",
    "input": 1.0,
    "cached_input": 0.25,
    "output": 4.0,
    "gpu_hour": 2.0,
}


def make_prices(**changed: float) -> Prices:
    amounts = {"input": 0.15, "cached_input": 0.03, "output": 0.5, "gpu_hour": 8.6} | changed
    return Prices("made", date(2026, 11, 30), "made up", **amounts)


def cost(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["cost", *map(str, arguments)], env={"COLUMNS": "150", "NO_COLOR": "1"})


def make_demo(path: Path, **hit_rates: float | None) -> Path:
    """Written by the demo's own writer: 1M prompt and 10K output tokens a minute, whatever the hit rate."""
    engines = {
        name.replace("_", "-"): EngineResult(
            hit_rate=hit_rate,
            prompt_tokens=1_000_000,
            resumed_tokens=0,
            ideal_tokens=0,
            recomputed_tokens=0,
            ttft_s=Percentiles(None, None),
            e2e_s=Percentiles(None, None),
            output_tokens_per_min=10_000.0,
            prompt_tokens_per_min=1_000_000.0,
            misses_tokens={},
        )
        for name, hit_rate in hit_rates.items()
    }
    Results("flashstate demo", "2026-11-30", {}, {}, {}, {}, {}, engines).write(path)
    return path


def make_simulation(folder: Path, *options: str) -> Path:
    """Simulated for real: two policies, two seeds, three minutes of three sessions."""
    traces, out = folder / "traces", folder / "simulated.json"
    write_parquet(make_sessions(5), traces)
    rules = ["--minutes=3", "--warmup=1", "--blocks=20", "--seeds=2", "--sessions=3", "--jobs=1"]
    options = (*rules, "--policy=gds,vllm-sparse", *options)
    found = CliRunner().invoke(app, ["simulate", str(traces), *options, "--json", str(out)])
    assert found.exit_code == 0, found.output
    return out
