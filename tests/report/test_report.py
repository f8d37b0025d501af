from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from flashstate.report.engine import EngineResult, Percentiles
from flashstate.report.figures import headline
from flashstate.report.html import Curves, write_html
from flashstate.report.plot import linear_axis, log_axis
from flashstate.report.results import Results
from flashstate.report.table import comparison

NOBODY: dict[str, int | None] = {"placement": None, "capacity": None, "dependency": None}
STOCK = EngineResult(
    hit_rate=0.25,
    prompt_tokens=400_000,
    resumed_tokens=100_000,
    ideal_tokens=350_000,
    recomputed_tokens=250_000,
    ttft_s=Percentiles(2.0, 4.0),
    e2e_s=Percentiles(5.0, 10.0),
    output_tokens_per_min=2000.0,
    prompt_tokens_per_min=500_000.0,
    misses_tokens=NOBODY,
)
OURS = replace(
    STOCK,
    hit_rate=0.75,
    resumed_tokens=300_000,
    recomputed_tokens=50_000,
    ttft_s=Percentiles(0.2, 1.0),
    prompt_tokens_per_min=1_000_000.0,
    misses_tokens={"placement": 0, "capacity": 49_000, "dependency": 1_000},
)
RESULTS = Results(
    command="flashstate demo --seed <1>",
    date="2026-11-30T10:00:00+00:00",
    machine={"processor": "A & B", "cores": 2},
    versions={"vllm": "0.32.0"},
    model={"family": "gdn"},
    cache={"setting": "small", "blocks": 400},
    workload={"kind": "synthetic", "missing": []},
    engines={"stock": STOCK, "stock-best": STOCK, "flashstate": OURS},
)
CAPTIONS = {
    "stock": "default settings",
    "stock-best": "the default is the best",
    "flashstate": "default settings",
}
CURVES = {
    "stock": Curves(recomputed=[(0, 0), (3, 100_000), (9, 250_000)], first_token=[(0.5, 0.5), (4.0, 1.0)]),
    "flashstate": Curves(recomputed=[(0, 0), (4, 50_000)], first_token=[(0.1, 0.5), (1.0, 1.0)]),
}
NUMBER, SHARE = (int, float), (int, float, type(None))
FIELDS = {
    "hit_rate": SHARE,
    "prompt_tokens": int,
    "resumed_tokens": int,
    "ideal_tokens": int,
    "recomputed_tokens": int,
    "ttft_s": {"p50": SHARE, "p90": SHARE},
    "e2e_s": {"p50": SHARE, "p90": SHARE},
    "output_tokens_per_min": NUMBER,
    "prompt_tokens_per_min": NUMBER,
    "misses_tokens": {
        "placement": (int, type(None)),
        "capacity": (int, type(None)),
        "dependency": (int, type(None)),
    },
}
TOP = ["command", "date", "machine", "versions", "model", "cache", "workload", "engines", "ratios"]


def check_schema(document: dict[str, object]) -> None:
    """That a results.json has exactly the fields that other tools read."""

    def check(value: object, form: object, where: str) -> None:
        if isinstance(form, dict):
            assert isinstance(value, dict), where
            assert list(value) == list(form), where
            for name, inner in form.items():
                check(value[name], inner, f"{where}.{name}")
        else:
            assert isinstance(value, form), where  # type: ignore[arg-type]

    assert list(document) == TOP
    engines = document["engines"]
    assert isinstance(engines, dict)
    assert set(engines) <= {"stock", "stock-best", "flashstate"}
    for name, engine in engines.items():
        check(engine, FIELDS, name)


def test_results_json_has_exactly_the_agreed_fields(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.json"
    RESULTS.write(path)
    document = json.loads(path.read_text())
    check_schema(document)
    assert list(document["engines"]) == ["stock", "stock-best", "flashstate"]
    assert document["engines"]["stock"]["misses_tokens"] == NOBODY
    assert [file.name for file in path.parent.iterdir()] == ["results.json"]


def test_ratios_are_ours_over_theirs() -> None:
    ratios = RESULTS.ratios["flashstate/stock-best"]
    assert ratios["prompt_tokens_per_min"] == 2.0
    assert ratios["hit_rate"] == 3.0
    assert ratios["ttft_p90"] == 0.25
    assert ratios["recomputed_tokens"] == 0.2


def test_nothing_is_divided_by_nothing() -> None:
    empty = replace(STOCK, hit_rate=0.0, recomputed_tokens=0, ttft_s=Percentiles(None, None))
    ratios = replace(RESULTS, engines={"stock": empty, "flashstate": OURS}).ratios["flashstate/stock"]
    assert (ratios["hit_rate"], ratios["recomputed_tokens"], ratios["ttft_p50"]) == (None, None, None)
    json.dumps(ratios, allow_nan=False)


def test_a_partial_comparison_is_written_too(tmp_path: Path) -> None:
    partial = replace(RESULTS, engines={"stock": STOCK}, workload={"missing": ["stock-dense", "flashstate"]})
    partial.write(tmp_path / "results.json")
    document = json.loads((tmp_path / "results.json").read_text())
    assert (list(document["engines"]), document["ratios"]) == (["stock"], {})
    write_html(tmp_path / "report.html", partial, CAPTIONS, {"stock": CURVES["stock"]})
    assert "before stock-dense, flashstate was measured" in (tmp_path / "report.html").read_text()
    assert headline(partial) is None


def test_the_table_names_every_figure() -> None:
    console = Console(width=110, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(comparison(RESULTS, CAPTIONS))
    text = console.export_text()
    for shown in (
        "Hit rate",
        "25.0 %",
        "75.0 %",
        "250,000",
        "1.00 M",
        "2.00 s / 4.00 s",
        "49,000",
        "stock-best",
    ):
        assert shown in text
    assert "2.00x the prompt throughput" in text


class Page(HTMLParser):
    """Checks that every tag is closed, and collects addresses."""

    VOID = frozenset({"meta", "link", "img", "br", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:
            return
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


def test_the_report_is_one_well_formed_file(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_html(path, RESULTS, CAPTIONS, CURVES)
    text = path.read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.addresses == []
    assert re.findall(r"https?:|url\(|@import|<script ", text) == []
    assert "prefers-color-scheme: dark" in text
    assert "A &amp; B" in text
    assert "--seed &lt;1&gt;" in text
    plots = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert sum("path" in plot for plot in plots) == 2
    for plot in plots:
        ElementTree.fromstring(plot)


def test_a_report_of_nothing_recomputed_still_draws(tmp_path: Path) -> None:
    flat = {"flashstate": Curves(recomputed=[(0, 0), (2, 0)], first_token=[(0.2, 1.0)])}
    write_html(tmp_path / "report.html", replace(RESULTS, engines={"flashstate": OURS}), CAPTIONS, flat)
    bare = {"flashstate": Curves(recomputed=[(0, 0)], first_token=[])}
    write_html(tmp_path / "report.html", replace(RESULTS, engines={"flashstate": OURS}), CAPTIONS, bare)


@pytest.mark.parametrize("most", [0.0, 0.3, 1.0, 7.0, 999.0, 1e6])
def test_axes_have_round_ticks_that_cover_the_values(most: float) -> None:
    axis = linear_axis("", [most], str)
    assert axis.most >= most
    assert 2 <= len(axis.ticks) <= 7
    assert axis.share(axis.most) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.03, 0.4], [0.02, 0.05, 0.1, 0.2, 0.5]),
        ([1.0], [1, 2]),
        ([], [1, 2]),
        ([0.0, 0.001, 0.009], [0.001, 0.002, 0.005, 0.01]),
        ([60.0, 100.0], [50, 100]),
    ],
)
def test_a_log_axis_covers_the_values(values: list[float], ticks: list[float]) -> None:
    axis = log_axis("", values, str)
    assert axis.ticks == pytest.approx(ticks)
    assert (axis.share(axis.least), axis.share(axis.most)) == (0.0, 1.0)
    assert axis.share(0.0) == 0.0
