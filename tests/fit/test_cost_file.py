"""What `flashstate fit` wrote, as serve and simulate take it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flashstate.core.cost import PrefillCostModel
from flashstate.cost_file import KIND, VERSION, CostFileError, read_prefill_cost
from flashstate.traces.parquet_writer import write_parquet
from tests.fit.make import refusal, run
from tests.simulate.sessions import make_sessions

GOOD: dict[str, Any] = {"kind": KIND, "version": VERSION, "coefficients": {"d": 3e-5, "e": 2e-3}}


def make_file(folder: Path, document: object = GOOD) -> Path:
    path = folder / "cost.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_the_coefficients_are_read(tmp_path: Path) -> None:
    assert read_prefill_cost(make_file(tmp_path)) == PrefillCostModel(3e-5, 2e-3)


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([], "is not of kind"),
        ({"kind": "prices"}, "is not of kind"),
        (GOOD | {"version": 2}, "version 2, not 1"),
        (GOOD | {"coefficients": {"d": 1e-5}}, "finite"),
        (GOOD | {"coefficients": {"d": 1e-5, "e": -1e-6}}, "0 or more"),
        (GOOD | {"coefficients": {"d": 0, "e": 0}}, "one above 0"),
        (GOOD | {"coefficients": {"d": True, "e": 1.0}}, "numbers"),
        (GOOD | {"coefficients": {"d": "1e-5", "e": 1.0}}, "numbers"),
        (GOOD | {"coefficients": {"d": 1e-5, "e": float("nan")}}, "finite"),
        (GOOD | {"coefficients": [1e-5, 1e-6]}, "coefficients"),
    ],
)
def test_anything_else_is_refused_in_one_line(tmp_path: Path, document: object, named: str) -> None:
    path = make_file(tmp_path, document)
    with pytest.raises(CostFileError) as error:
        read_prefill_cost(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ") and named in message and "\n" not in message
    assert "flashstate fit" in message


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json", Path("/dev/zero")):
        with pytest.raises(CostFileError, match=f"^{path}: "):
            read_prefill_cost(path)


def test_simulate_takes_it_for_the_geometry(tmp_path: Path) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out.json"
    write_parquet(make_sessions(3), traces)
    options = (
        "--minutes",
        2,
        "--warmup",
        1,
        "--blocks",
        20,
        "--seeds",
        1,
        "--sessions",
        2,
        "--policy",
        "gds",
    )
    geometries = []
    for given in (("--prefill-cost", make_file(tmp_path)), ("--cost", "3e-5", "2e-3")):
        found = run("simulate", traces, *options, *given, "--clock", "engine", "--json", out)
        assert found.exit_code == 0, found.stderr
        setup = json.loads(out.read_text())["setup"]
        assert setup["geometry"]["cost"] == setup["serving"]["timing"]["prefill"] == {"d": 3e-5, "e": 2e-3}
        assert "cost" not in setup["geometry"]["published"]
        geometries.append(setup)
        out.unlink()
    assert geometries[0] == geometries[1]


def test_simulate_refuses_two_costs_and_a_bad_file(tmp_path: Path) -> None:
    path, timing = make_file(tmp_path), tmp_path / "timing.json"
    for others, named in (
        (("--cost", "1e-5", "0"), "and --cost: give one or the other"),
        (("--clock", "engine", "--timing", timing), f"and --timing {timing}: "),
    ):
        message = refusal("simulate", tmp_path, "--prefill-cost", path, *others)
        assert message.startswith(f"--prefill-cost {path} ") and named in message
    bad = refusal("simulate", tmp_path, "--prefill-cost", tmp_path / "missing")
    assert bad.startswith(f"--prefill-cost {tmp_path / 'missing'}: ")


def test_serve_takes_it_for_the_policy(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    from flashstate.plugin.serve import read_options

    path = make_file(tmp_path)
    settings, rest = read_options(["model", "--prefill-cost", str(path), "--port", "80"])
    assert settings.prefill_cost_coefficients == (3e-5, 2e-3)
    assert settings.make_policy().settings.cost == PrefillCostModel(3e-5, 2e-3)
    assert rest == ["model", "--port", "80"]


def test_serve_refuses_two_costs_and_a_bad_file(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    from flashstate.plugin.serve import read_options
    from flashstate.plugin.settings import SettingsError

    path, bad = make_file(tmp_path), tmp_path / "missing"
    for arguments, named in (
        (
            ["--prefill-cost", str(path), "--prefill-cost-coefficients", "1.862e-5", "3.33e-6"],
            "one or the other",
        ),
        (["--prefill-cost", str(bad)], f"--prefill-cost {bad}: "),
    ):
        with pytest.raises(SettingsError) as error:
            read_options(["model", *arguments])
        assert named in str(error.value) and "\n" not in str(error.value)
