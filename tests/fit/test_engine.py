"""A served tiny model: its prefill is measured, fitted, predicted, and ranks what another server evicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashstate.models.tiny import write_tiny_model
from tests.fit.make import run
from tests.plugin.served import serving

# Slow: it measures, and measures again where the machine is busy.
pytestmark = [pytest.mark.engine, pytest.mark.slow]
pytest.importorskip("vllm")

TRIES = 3
"""Where other work comes and goes on the machine, a fit is refused now and then, as it should be."""


def fitted(url: str, out: Path) -> str:
    """Fits, and gives what was printed."""
    for _ in range(TRIES):
        found = run("fit", "--url", url, "--out", out)
        if found.exit_code == 0:
            break
        assert "measure again" in found.stderr and not out.exists()
    assert found.exit_code == 0, found.stderr
    return found.stdout


def test_a_fit_predicts_held_out_prefills_and_drives_gds(tmp_path: Path) -> None:
    model, out, log = write_tiny_model("gdn", tmp_path / "model"), tmp_path / "cost.json", tmp_path / "events"
    with serving(model, "gdn", tmp_path / "fit.log") as served:
        shown = fitted(served._server.url, out)
    print(shown)
    document = json.loads(out.read_text())
    assert document["median_relative_error"]["held_out"] <= 0.10
    found = document["coefficients"]
    assert found["d"] > 0
    assert any(prefill["start"] > 1000 for prefill in document["prefills"] if prefill["held_out"])

    options = ("--prefill-cost", str(out), "--prefix-cache-eviction", "gds", "--event-log", str(log))
    with serving(model, "gdn", tmp_path / "gds.log", *options) as served:
        served.complete(list(range(100, 900)), 4)
    setup = json.loads(log.read_text().splitlines()[0])
    assert setup["policy"] == "gds"
    assert setup["settings"]["cost"] == {"d": found["d"], "e": found["e"]}
    replayed = run("check-log", log)
    assert replayed.exit_code == 0, replayed.stderr
