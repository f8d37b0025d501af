from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.economics.make import PRESET, cost, make_demo, make_simulation

RATES = ("--prompt-tokens-per-minute", 9.48e6, "--output-tokens-per-minute", 61_700, "--hit-rate", 0.87)


def costs(*arguments: object) -> dict[str, Any]:
    found = cost(*arguments, "--json")
    assert (found.exit_code, found.stderr) == (0, "")
    document: dict[str, Any] = json.loads(found.stdout)
    return document


def refusal(*arguments: object) -> str:
    found = cost(*arguments)
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.count("\n") == 1
    return found.stderr.removeprefix("flashstate: ").strip()


def edit(path: Path, *place: str | int, value: object = None) -> Path:
    """Sets a field, or removes it."""
    document = inner = json.loads(path.read_text())
    for name in place[:-1]:
        inner = inner[name]
    if value is None:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    path.write_text(json.dumps(document))
    return path


def test_given_rates_as_a_table() -> None:
    found = cost(*RATES, "--gpus", 2, "--sensitivity")
    text = " ".join(found.stdout.split())
    assert (found.exit_code, found.stderr) == (0, "")
    for part in (
        "zai-glm-5.3-flash (2026-11-09): $0.15 / $0.03 / $0.50 per 1M input / cached input / output tokens, $8.60",
        "given rates 0.870 $0.0456 $12.97 $0.93 $13.89 $5.29",
        "0% off 25% off 50% off 75% off *80% off 90% off",
        "*$8.60 $34.99 $25.71 $16.43 $7.15 $5.29 $1.58",
        "$10.75 $32.84 $23.56 $14.28 $5.00 $3.14 -$0.57",
        "user cost, 1M input $0.1500 $0.1174 $0.0848 $0.0521 $0.0456 $0.0325",
    ):
        assert part in text
    assert "off" not in cost(*RATES).stdout


def test_given_rates_as_json_at_prices_of_the_users(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(yaml.safe_dump({"presets": {"mine": dict(PRESET)}}))
    rates = ("--prompt-tokens-per-minute", 100_000, "--output-tokens-per-minute", 5000, "--hit-rate", 0.5)
    found = costs(*rates, "--gpus", 4, "--prices", prices, "--preset", "mine", "--sensitivity")
    assert found["prices"] == {"name": "mine", **PRESET, "cached_discount": 0.75}
    (server,) = found["servers"]
    assert server["user_cost_per_1m_input"] == 0.625
    assert server["engine_hour"] == pytest.approx(
        {"input_revenue": 3.75, "output_revenue": 1.2, "revenue": 4.95, "gpu_cost": 8.0, "profit": -3.05}
    )
    assert server["profit_per_gpu_hour"] == pytest.approx(-0.7625)
    grid = server["sensitivity"]
    assert grid["gpu_hours"] == [1.0, 1.5, 2.0, 2.5, 3.0] and grid["discounts"] == [0, 0.25, 0.5, 0.75, 0.9]
    assert grid["profit_per_gpu_hour"][2][3] == pytest.approx(-0.7625)


def test_the_demos_file_counts_as_one_gpu_unless_told(tmp_path: Path) -> None:
    path = make_demo(tmp_path / "results.json", stock=0.3, flashstate=0.8)
    found = costs(path)
    stock, ours = found["servers"]
    assert (stock["name"], stock["gpus"], ours["name"]) == ("stock", 1, "flashstate")
    assert stock["user_cost_per_1m_input"] == pytest.approx(0.114)
    assert ours["revenue_per_gpu_hour"] == pytest.approx(60 * 0.054 + 0.6 * 0.5)
    assert "counts as one" in found["notes"][0] and "counts as one" in cost(path).stdout
    told = costs(path, "--gpus", 2)
    assert told["notes"] == []
    assert told["servers"][1]["revenue_per_gpu_hour"] == pytest.approx(ours["revenue_per_gpu_hour"] / 2)


def test_a_simulations_rates_are_a_gpus_and_its_runs_add_up(tmp_path: Path) -> None:
    path = make_simulation(tmp_path, "--clock", "engine")
    runs = [row for row in json.loads(path.read_text())["results"] if row["key"]["policy"] == "gds"]
    found = {server["name"]: server for server in costs(path)["servers"]}
    assert found.keys() == {"gds", "vllm-sparse"} and len(runs) == 2
    gds = found["gds"]
    assert (gds["sessions"], gds["gpus"]) == (3, 2)
    revenues = []
    for run in runs:
        hit_rate = run["resumed_tokens"] / run["prompt_tokens"]
        prompt, output = (60e-6 * run["served"][f"{kind}_tokens_per_min"] for kind in ("prompt", "output"))
        revenues.append(prompt * (0.15 * (1 - hit_rate) + 0.03 * hit_rate) + output * 0.5)
    assert gds["revenue_per_gpu_hour"] == pytest.approx(sum(revenues) / 2)
    assert "gpus 3: the file has 2" in refusal(path, "--gpus", 3)
    edit(path, "results", 0, "served", "output_tokens_per_min")
    assert refusal(path).startswith(f"{path}: results[0].served.output_tokens_per_min is missing: write")
    edit(path, "setup", "serving", "timing", "gpus")
    assert "setup.serving.timing.gpus is missing" in refusal(path)


def test_a_recorded_clock_gives_the_user_cost_and_says_what_is_missing(tmp_path: Path) -> None:
    path = make_simulation(tmp_path)
    found = costs(path)
    assert all(
        server.keys() == {"name", "sessions", "hit_rate", "user_cost_per_1m_input"}
        for server in found["servers"]
    )
    assert "served.prompt_tokens_per_min is missing" in found["notes"][0]
    assert "simulate with --clock engine" in " ".join(cost(path).stdout.split())
    assert "served.prompt_tokens_per_min is missing" in refusal(path, "--sensitivity")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (
            "prompt_tokens_per_min",
            None,
            "engines.stock.prompt_tokens_per_min is missing: write the file anew",
        ),
        ("output_tokens_per_min", "many", "engines.stock.output_tokens_per_min is 'many': must be a number"),
        ("output_tokens_per_min", -1, "engines.stock: output tokens per minute -1: must be from 0"),
        (
            "prompt_tokens_per_min",
            float("nan"),
            "engines.stock: prompt tokens per minute nan: must be from 0",
        ),
        ("hit_rate", 87, "engines.stock: hit rate 87: must be a share from 0 to 1, such as 0.87"),
        ("hit_rate", None, "engines.stock.hit_rate is missing"),
    ],
)
def test_an_edited_demo_file_names_the_field(tmp_path: Path, name: str, value: object, reason: str) -> None:
    path = edit(make_demo(tmp_path / "results.json", stock=0.3), "engines", "stock", name, value=value)
    assert refusal(path).startswith(f"{path}: {reason}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[1]", "the file is [1]: must hold named fields"),
        ("{}", "engines is missing: write the file anew"),
        ('{"engines": {}}', "engines is empty"),
        ('{"kind": "flashstate simulate", "format": 2}', "format is 2: must be 1"),
        (
            '{"kind": "flashstate simulate", "format": 1, "results": []}',
            "results: must be a list of one or more",
        ),
    ],
)
def test_what_is_no_results_file_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    assert refusal(path).startswith(f"{path}: {reason}")
    assert "No such file" in refusal(tmp_path / "none.json")


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    path = make_demo(tmp_path / "results.json", stock=0.3)
    assert refusal(path, "--hit-rate", 0.5).startswith(f"--hit-rate 0.5: {path} has the rates")
    assert refusal("--hit-rate", 0.5).startswith(
        "--prompt-tokens-per-minute, --output-tokens-per-minute missing: give a results file, or "
    )
    assert refusal(*RATES[:-1], 87).startswith("hit rate 87: must be a share from 0 to 1")
    assert refusal(*RATES, "--gpus", 0).startswith("gpus 0: must be from 1")
    assert refusal(path, "--gpus", 0).startswith(f"{path}: engines.stock: gpus 0")
    assert refusal(*RATES, "--preset", "none").startswith("preset 'none': unknown; one of zai-glm-5.3-flash")


def test_a_rate_of_zero_is_a_rate() -> None:
    found = costs("--prompt-tokens-per-minute", 0, "--output-tokens-per-minute", 0, "--hit-rate", 0)
    assert found["servers"][0]["profit_per_gpu_hour"] == -8.6
