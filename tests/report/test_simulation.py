from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console
from typer.testing import CliRunner

from flashstate.cli import app
from flashstate.report.page import write_page
from flashstate.report.published import comparisons
from flashstate.report.simulation import HIT_RATE, REDUNDANT, SERVED, Simulation, share, simulation
from flashstate.report.simulation_table import simulation_tables
from flashstate.report.simulation_view import tables, telling_load
from tests.full_disk import full_after
from tests.report.test_report import Page

SERVED_FIGURES = {
    "prompt_tokens_per_min": 4e6, "output_tokens_per_min": 6e4, "ttft_p50_s": 0.2, "ttft_p90_s": 2.0,
    "latency_p50_s": 12.0, "latency_p90_s": 40.0, "worst_wait_s": 99.0, "unserved": 3.0,
}  # fmt: skip


def make_run(
    policy: str, sessions: int, seed: int = 0, resumed: int = 500, working_set: float = 0.5, **changed: Any
) -> dict[str, Any]:
    """Ten requests of 100 tokens, of which 90 could have been resumed."""
    return {
        "key": {
            "policy": policy,
            "sessions": sessions,
            "seed": seed,
            "clock": "recorded",
            "geometry": "glm-5.3-flash",
        },
        "requests": 10,
        "prompt_tokens": 1000,
        "resumed_tokens": resumed,
        "ideal_tokens": 900,
        "missed_tokens": {"placement": 20, "capacity": 880 - resumed, "dependency": 0},
        "median_uncached_tokens": 12.0,
        "occupancy": 0.99,
        "resident_checkpoints": 123.4,
        "working_set": working_set,
        "evictions": {"leaf": 4, "inner": 1},
        "wall_s": 1.0,
        "served": {},
    } | changed


def make_document(*runs: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "kind": "flashstate simulate",
        "format": 1,
        "date": "2026-11-30T10:00:00+00:00",
        "machine": {"system": "Linux <x>", "cores": 2},
        "command": "flashstate simulate traces",
        "policies": {
            "gds": "as published",
            "flashstate": "ours",
            "clairvoyant": "bound",
            "other": "never ran",
        },
        "setup": {
            "traces": {"names": ["traces"], "sessions": 3, "left_out": {}},
            "geometry": {"name": "glm-5.3-flash", "blocks": 2531},
            "clock": "recorded",
            "rules": {"gaps": "recorded"},
        },
        "results": list(runs),
    } | changed


def make_simulation(*runs: dict[str, Any], **changed: Any) -> Simulation:
    return simulation(make_document(*runs, **changed))


SWEEP = (
    make_run("gds", 32, 0, 600), make_run("gds", 32, 1, 640),
    make_run("gds", 48, 0, 300, 1.5), make_run("gds", 48, 1, 500, 1.5),
    make_run("flashstate", 32, 0, 700), make_run("flashstate", 32, 1, 720), make_run("flashstate", 48, 0, 650, 1.5),
    make_run("clairvoyant", 32, 0, 880), make_run("clairvoyant", 48, 0, 800, 1.5),
)  # fmt: skip


def printed(made: Simulation, width: int = 150) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(simulation_tables(made))
    return captured.get()


def line_of(text: str, start: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(start))


def test_figures_are_means_over_seeds() -> None:
    made = make_simulation(*SWEEP)
    mean = made.mean(HIT_RATE, "gds", 48)
    assert mean is not None
    assert (mean.value, mean.spread, mean.seeds) == (pytest.approx(0.4), pytest.approx(0.1), 2)
    redundant = made.mean(REDUNDANT, "gds", 48)
    assert redundant is not None and redundant.value == pytest.approx((900 - 400) / 10)
    assert made.mean(HIT_RATE, "gds", 64) is None
    assert made.mean(SERVED[0], "gds", 48) is None
    assert list(made.policies) == ["gds", "flashstate", "clairvoyant"]


def test_the_cliff_lies_where_the_working_set_meets_the_cache() -> None:
    made = make_simulation(*SWEEP)
    assert made.cliff == 40.0  # 0.5 at 32, 1.5 at 48
    assert [made.is_past_cliff(n) for n in made.loads] == [False, True]
    assert telling_load(made) == 48
    assert make_simulation(make_run("gds", 16), make_run("gds", 32)).cliff is None
    assert make_simulation(make_run("gds", 16, working_set=2.0)).cliff == 16


def test_the_bound_is_compared_on_the_same_seeds_and_never_the_best() -> None:
    made = make_simulation(*SWEEP)
    assert made.below_bound("gds", 48) == pytest.approx(0.8 - 0.3)  # seed 0 alone
    assert made.below_bound("gds", 64) is None
    assert made.best(HIT_RATE, 48) == "flashstate"
    assert made.best(REDUNDANT, 48) == "flashstate"
    assert make_simulation(make_run("gds", 16)).best(HIT_RATE, 16) is None


def test_shares_have_no_negative_zero() -> None:
    assert [share(value) for value in (-0.0004, 0.0, -0.0006, 0.9462)] == [
        "0.000",
        "0.000",
        "-0.001",
        "0.946",
    ]


def test_means_of_fewer_seeds_are_marked() -> None:
    made = make_simulation(*SWEEP)
    assert made.is_partial("flashstate", 48) and not made.is_partial("gds", 48)
    assert not make_simulation(make_run("gds", 16), make_run("flashstate", 32)).is_partial("gds", 32)


def test_tables_in_the_terminal() -> None:
    text = printed(make_simulation(*SWEEP))
    assert line_of(text, "gds") == ["gds", "0.620", "±.020", "0.400", "±.100"]
    assert line_of(text, "flashstate") == ["flashstate", "0.710", "±.010", "0.650*"]
    assert line_of(text[text.index("Redundant") :], "flashstate") == ["flashstate", "19", "±1", "25*"]
    assert line_of(text, "(ideal)") == ["(ideal)", "0.900", "0.900"]
    assert line_of(text, "(working set)") == ["(working", "set)", "0.500", "1.500"]
    assert "48▲" in text and "from about 40 sessions on" in text
    assert "* fewer seeds than others" in text
    assert "At 48 sessions" in text
    assert "Prompt throughput" not in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_tables_fit_any_terminal(width: int) -> None:
    assert all(len(line) <= width for line in printed(make_simulation(*SWEEP), width).splitlines())


def test_what_only_the_engine_clock_knows_is_shown_with_it() -> None:
    runs = [make_run(p, 48, resumed=r, served=SERVED_FIGURES) for p, r in (("gds", 400), ("flashstate", 600))]
    made = make_simulation(*runs)
    text = printed(made)
    for figure in SERVED:
        assert made.has(figure)
        assert figure.name in text
    assert line_of(text[text.index("TTFT p90") :], "gds") == ["gds", "2.00"]
    assert len([t for t in tables(made) if t.title in {figure.name for figure in SERVED}]) == len(SERVED)


def test_published_figures_stand_beside_ours_where_they_fit() -> None:
    rows = [make_run("vllm-dense", 48, resumed=400), make_run("gds", 48, resumed=500)]
    (found,) = comparisons(make_simulation(*rows))
    assert found.columns == ("hit rate at 48", "published at 48", "dependency misses", "published")
    assert found.rows == (
        ("vllm-dense", "0.400", "0.275", "0", "5,702"),
        ("gds", "0.500", "0.599", "0", "2,483"),
    )
    elsewhere = make_simulation(
        *rows,
        setup={
            "geometry": {"name": "glm-5.3-flash", "blocks": 9},
            "clock": "recorded",
            "rules": {"gaps": "recorded"},
        },
    )
    assert comparisons(elsewhere) == []
    assert comparisons(make_simulation(make_run("gds", 16))) == []


def test_ratios_stand_beside_the_papers() -> None:
    ours = SERVED_FIGURES | {"prompt_tokens_per_min": 1e7, "ttft_p90_s": 0.5}
    made = make_simulation(
        make_run("vllm-dense", 48, served=SERVED_FIGURES), make_run("flashstate", 48, served=ours)
    )
    found = comparisons(made)[-1]
    assert found.columns == ("flashstate / vllm-dense", "published")
    assert found.rows == (
        ("Prompt throughput", "2.50x", "3.14x"),
        ("Output throughput", "1.00x", "3.02x"),
        ("TTFT p90", "0.25x", "0.12x"),
    )  # fmt: skip


# --- the page -------------------------------------------------------------------------------------------------


def test_the_page_is_one_well_formed_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    served = make_simulation(make_run("flashstate", 48, served=SERVED_FIGURES))
    write_page(path, [make_simulation(*SWEEP), served])
    text = path.read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.addresses == []
    assert re.findall(r"https?:|url\(|@import|<script ", text) == []
    assert "prefers-color-scheme: dark" in text
    assert "Linux &lt;x&gt;" in text
    assert "At 48 sessions, a working set of 1.50 times the cache, flashstate does best: 0.650" in text
    plots = [plot for plot in re.findall(r"<svg.*?</svg>", text, re.DOTALL) if "aria-label" in plot]
    assert len(plots) == 7 + 7 + len(SERVED)
    for plot in plots:
        ElementTree.fromstring(plot)
    hits = plots[0]
    assert "working set = cache" in hits
    assert "gds, 48: 0.400" in hits
    assert hits.count("<circle") == 6


def test_names_from_a_file_cannot_break_out(tmp_path: Path) -> None:
    evil = "<b>\"&'x"
    made = make_simulation(make_run(evil, 16), make_run("gds", 16), policies={"gds": evil})
    write_page(tmp_path / "r.html", [made])
    text = (tmp_path / "r.html").read_text()
    assert "<b>" not in text
    page = Page()
    page.feed(text)
    for plot in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(plot)


@pytest.mark.parametrize(
    "run", [make_run("gds", 16, resumed=0), make_run("gds", 16, resumed=900, requests=0)]
)
def test_one_run_of_nothing_still_draws(run: dict[str, Any], tmp_path: Path) -> None:
    write_page(tmp_path / "r.html", [make_simulation(run)])
    assert "nan" not in (tmp_path / "r.html").read_text()


def report(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["report", *arguments])
    return found.exit_code, found.stdout, found.stderr


def test_the_command_makes_one_page_of_several_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(make_document(*SWEEP)))
    html = tmp_path / "r.html"
    code, output, errors = report(str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--html", str(html))
    assert (code, output, errors) == (0, f"report: {html}\n", "")
    assert html.read_text().count('<div class="part">') == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "is not a results file of `flashstate simulate --json`"),
        ('{"kind": "else", "format": 1}', "is not a results file"),
        (json.dumps(make_document(make_run("gds", 16, requests="ten"))), "is not a results file"),
        (json.dumps(make_document(make_run("gds", 16, missed_tokens={}))), "is not a results file"),
        (json.dumps(make_document(make_run("gds", 16, occupancy=None))), "is not a results file"),
        (json.dumps(make_document(make_run("gds", 16), setup={"geometry": []})), "is not a results file"),
        (json.dumps(make_document(make_run("gds", 10**400))), "is not a results file"),
        (json.dumps(make_document(make_run("gds", 16, working_set=1e308))), "is not a results file"),
        (json.dumps(make_document()), "holds no runs"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_files_that_are_no_results(content: str, reason: str, tmp_path: Path) -> None:
    path, html = tmp_path / "r.json", tmp_path / "r.html"
    path.write_text(content)
    code, output, errors = report(str(path), "--html", str(html))
    assert (code, output, errors.count("\n")) == (1, "", 1)
    assert errors.startswith(f"flashstate: {path}: ") and reason in errors
    assert not html.exists()


def test_files_that_are_not_there(tmp_path: Path) -> None:
    code, _, errors = report(str(tmp_path / "none.json"), "--html", str(tmp_path / "r.html"))
    assert (code, errors) == (1, f"flashstate: {tmp_path / 'none.json'}: No such file or directory\n")
    (tmp_path / "a.json").write_text(json.dumps(make_document(*SWEEP)))
    code, _, errors = report(str(tmp_path / "a.json"), "--html", str(tmp_path))
    assert (code, errors) == (1, f"flashstate: {tmp_path}: Is a directory\n")


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code, _, errors = report(str(pipe), "--html", str(tmp_path / "r.html"))
    assert (code, errors) == (1, f"flashstate: {pipe}: is not a regular file\n")


@pytest.mark.parametrize("before", [None, "the page of yesterday"])
def test_a_full_disk_leaves_no_half_page(before: str | None, tmp_path: Path) -> None:
    results, html = tmp_path / "a.json", tmp_path / "r.html"
    results.write_text(json.dumps(make_document(*SWEEP)))
    if before is not None:
        html.write_text(before)
    with full_after(4096):
        code, output, errors = report(str(results), "--html", str(html))
    assert (code, output, errors) == (1, "", f"flashstate: {html}: File too large\n")
    assert (html.read_text() if html.exists() else None) == before
    assert {path.name for path in tmp_path.iterdir()} == {"a.json"} | ({"r.html"} if before else set())
    assert report(str(results), "--html", str(html))[0] == 0


def test_a_page_goes_where_a_link_points_and_into_what_is_no_file(tmp_path: Path) -> None:
    results, html = tmp_path / "a.json", tmp_path / "r.html"
    results.write_text(json.dumps(make_document(*SWEEP)))
    html.symlink_to(tmp_path / "there.html")
    assert report(str(results), "--html", str(html))[0] == 0
    assert html.is_symlink() and (tmp_path / "there.html").stat().st_size > 0
    assert report(str(results), "--html", "/dev/null")[0] == 0
    assert (
        report(str(results), "--html", "/dev/full")[2] == "flashstate: /dev/full: No space left on device\n"
    )


def test_a_page_never_replaces_results(tmp_path: Path) -> None:
    results = tmp_path / "a.json"
    results.write_text("precious")
    for page in (results, tmp_path / "." / "a.json"):
        code, _, errors = report(str(results), "--html", str(page))
        assert (code, errors) == (1, f"flashstate: {page}: holds results; name another file with --html\n")
    assert results.read_text() == "precious"
