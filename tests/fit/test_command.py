"""`flashstate fit` against a server whose coefficients are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashstate.cost_file import read_prefill_cost
from flashstate.urls import without_passwords
from tests.fit.make import refusal, run
from tests.fit.server import TIME, FakeServer, serving


def measured(fake: FakeServer, out: Path, *options: object) -> tuple[dict[str, Any], str]:
    with serving(fake) as url:
        found = run("fit", "--url", url, "--out", out, "--rounds", 3, *options)
    assert found.exit_code == 0, found.stderr
    return json.loads(out.read_text()), found.stdout


def test_it_finds_what_the_server_takes(tmp_path: Path) -> None:
    fake, out = FakeServer(models=("other", "tiny"), most_tokens=None), tmp_path / "new" / "cost.json"
    document, shown = measured(fake, out, "--model", "tiny", "--longest", 4096)
    assert max(map(len, fake.prompts)) == 4096
    found = document["coefficients"]
    total = TIME.d * 4096 + TIME.e * 4.096**2
    assert found["d"] * 4096 + found["e"] * 4.096**2 == pytest.approx(total, rel=0.25)
    assert found["request_s"] == pytest.approx(TIME.request_s, abs=0.01)
    cost = read_prefill_cost(out)
    assert (cost.d, cost.e) == (found["d"], found["e"])
    assert document["median_relative_error"]["held_out"] < 0.1
    assert (document["model"], document["server"]["version"]) == ("tiny", "1.2.3")
    assert document["date"] and document["client_machine"]["cores"]
    for word in ("s/token", "95% interval", "Held out", "held out", str(out), "--prefill-cost"):
        assert word in shown
    assert list(out.parent.iterdir()) == [out]


def test_a_bad_fit_is_refused_and_leaves_the_old_file(tmp_path: Path) -> None:
    out = tmp_path / "cost.json"
    out.write_text("old")
    flat = replace(TIME, d=0.0, e=0.0, request_s=0.03)
    with serving(FakeServer(flat)) as url:
        message = refusal("fit", "--url", url, "--out", out, "--longest", 1024, "--rounds", 2)
    assert "measure again" in message or "a longer --longest" in message
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    ("fake", "options", "named"),
    [
        (FakeServer(breaks_at=2000), (), "a prompt of 4096 tokens failed (http 400: out of room): "),
        (FakeServer(), ("--model", "large"), "--model large: the server has tiny"),
        (FakeServer(), ("--longest", 4097), "--longest 4097: tiny takes prompts of 4096 tokens at most"),
        (FakeServer(), ("--longest", 1000), "--longest 1000: must be 1024 tokens or more"),
        (FakeServer(most_tokens=512), (), "511"),
        (FakeServer(models=()), (), "serves no model"),
        (FakeServer(), ("--rounds", 0), "--rounds 0: must be from 1 to 1000"),
        (FakeServer(), ("--out", "/dev/null/cost.json"), "--out /dev/null/cost.json: cannot be written"),
    ],
)
def test_what_cannot_be_measured_is_named(
    tmp_path: Path, fake: FakeServer, options: tuple[object, ...], named: str
) -> None:
    with serving(fake) as url:
        assert named in refusal("fit", "--url", url, "--out", tmp_path / "cost.json", *options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("localhost:8000", "--url localhost:8000: must be like http://localhost:8000"),
        ("http://127.0.0.1:9", "--url http://127.0.0.1:9: lists no models"),
    ],
)
def test_no_server(tmp_path: Path, url: str, named: str) -> None:
    assert refusal("fit", "--url", url, "--out", tmp_path / "cost.json").startswith(named)


def test_a_server_that_is_none_of_these(tmp_path: Path) -> None:
    with serving(FakeServer()) as url:
        assert "lists no models" in refusal("fit", "--url", f"{url}/deeper", "--out", tmp_path / "cost.json")


def test_no_password_is_written() -> None:
    assert without_passwords("http://me:secret@host:81/base") == "http://host:81/base"
    command = "flashstate replay t --url http://me:secret@a/v1,https://you@b:8000 --records x@y"
    assert without_passwords(command) == (
        "flashstate replay t --url http://a/v1,https://b:8000 --records x@y"
    )
