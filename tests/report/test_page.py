from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from flashstate.cli import app
from flashstate.traces.mooncake_writer import write_mooncake
from flashstate.traces.parquet_writer import write_parquet
from tests.report.records import make_aiperf, make_bench, make_record, make_records, write_lines
from tests.report.test_report import Page
from tests.report.test_simulation import SWEEP, make_document
from tests.traces.made import SMALL, make_session


def report(*arguments: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["report", *map(str, arguments)])
    return found.exit_code, found.stdout, found.stderr


def make_page(folder: Path, *arguments: object) -> str:
    """A page of two engines and what else is named."""
    stock = write_lines(folder / "a.jsonl", make_records(2, 10))
    ours = write_lines(
        folder / "b.jsonl", make_records(2, 10, cached_tokens=800, missed_tokens={"capacity": 0})
    )
    html = folder / "r.html"
    code, output, errors = report(f"stock={stock}", f"flashstate={ours}", *arguments, "--html", html)
    assert (code, output, errors) == (0, f"report: {html}\n", "")
    return html.read_text()


def plots_of(text: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(plot) for plot in re.findall(r"<svg[^>]*role.*?</svg>", text, re.DOTALL)]


def test_the_page_is_one_well_formed_file(tmp_path: Path) -> None:
    text = make_page(tmp_path)
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.addresses == []
    assert re.findall(r"https?:|url\(|@import|<script ", text) == []
    plots = plots_of(text)
    labels = [plot.get("aria-label") for plot in plots]
    assert "Hit rate over time, by engine" in labels
    assert "Missed: capacity over time, by engine" in labels
    assert "Sessions of flashstate over time" in labels
    for plot in plots:
        assert [child.tag for child in plot][:2] == ["title", "desc"]
        assert all(child.text for child in list(plot)[:2])
    assert text.count("<table") == text.count("<caption>") == 3


def test_an_engine_at_several_loads_is_a_curve(tmp_path: Path) -> None:
    more = write_lines(tmp_path / "c.jsonl", make_records(4, 10))
    text = make_page(tmp_path, f"stock={more}")
    (curve,) = [
        plot for plot in plots_of(text) if plot.get("aria-label") == "Prompt throughput by load, by engine"
    ]
    titles = [title.text for title in curve.iter("title")]
    # Two sessions take 58 seconds, four 60, for 1,000 tokens a turn.
    assert titles[1:3] == ["stock, 2: 20,690", "stock, 4: 40,000"]
    assert "stock, 4 sessions" in text
    assert text.count("checked") - text.count(":checked") - text.count("box.checked") == 2 * 2


def test_simulations_and_other_clients_stand_beside(tmp_path: Path) -> None:
    (tmp_path / "sim.json").write_text(json.dumps(make_document(*SWEEP)))
    write_lines(tmp_path / "profile_export.jsonl", [make_aiperf(n) for n in range(4)])
    write_lines(tmp_path / "bench.json", [make_bench(8)])
    files = (tmp_path / name for name in ("sim.json", "profile_export.jsonl", "bench.json"))
    text = make_page(tmp_path, *files)
    assert "glm-5.3-flash, recorded clock" in text
    assert "profile_export: 4 requests from AIPerf." in text
    assert "bench: 8 requests from vllm bench serve." in text
    assert "FlashState, published" in text and "bench, measured" in text
    assert "nan" not in text.replace("finance", "")


def test_names_from_a_file_cannot_break_out(tmp_path: Path) -> None:
    evil = "<b>\"&'x"
    rows = [make_record(evil, kind=evil, agent=evil, error=evil), make_record(evil, 1, 6.0)]
    path = write_lines(tmp_path / "e.jsonl", rows)
    text = make_page(tmp_path, f"{evil}={path}")
    assert "<b>" not in text
    Page().feed(text)
    assert plots_of(text)


@pytest.mark.parametrize(
    "rows",
    [
        [make_record(start_s=0.0, end_s=0.0, ttft_s=0.0)],
        [make_record(error="refused: no", ttft_s=None, prompt_tokens=0, output_tokens=0)],
        [make_record(prompt_tokens=0, cached_tokens=0, ideal_tokens=0)],
        [make_record(prompt_tokens=10**15, end_s=1e-9, ttft_s=0.0)],
    ],
)
def test_a_request_of_nothing_still_draws(rows: list[object], tmp_path: Path) -> None:
    write_lines(tmp_path / "x.jsonl", rows)
    assert report(tmp_path / "x.jsonl", "--html", tmp_path / "x.html")[0] == 0
    for plot in plots_of((tmp_path / "x.html").read_text()):
        assert "nan" not in ElementTree.tostring(plot, "unicode")


def test_prices_and_gpus_move_the_profit(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "presets:\n  mine: {date: 2026-11-30, source: ours, input: 100, cached_input: 50, output: 0, gpu_hour: 1}\n"
    )
    text = make_page(tmp_path, "--prices", prices, "--gpus", 2)
    # 1.24M prompt tokens an hour at 70 dollars a million, over two GPUs that cost a dollar each.
    assert "$42.45" in text
    code, _, errors = report(tmp_path / "a.jsonl", "--html", tmp_path / "r.html", "--preset", "other")
    assert code == 1 and "preset 'other': unknown" in errors
    code, _, errors = report(tmp_path / "a.jsonl", "--html", tmp_path / "r.html", "--gpus", 0)
    assert errors == "flashstate: --gpus 0: must be from 1 to 1,000,000, the GPUs of one engine\n"


def test_records_are_never_replaced(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", make_records())
    before = path.read_bytes()
    code, _, errors = report(f"x={path}", "--html", path)
    assert (code, errors) == (1, f"flashstate: {path}: holds results; name another file with --html\n")
    assert path.read_bytes() == before


def test_a_trace_is_no_run_and_what_reads_it_is_said(tmp_path: Path) -> None:
    mooncake, tables = tmp_path / "t.jsonl", tmp_path / "tables"
    write_mooncake([make_session()], mooncake)
    write_parquet([make_session()], tables)
    for path in (mooncake, tables, SMALL):
        code, _, errors = report(path, "--html", tmp_path / "r.html")
        assert code == 1
        assert errors.startswith(
            f"flashstate: {path}: is a trace, not the records of a run: `flashstate trace stats`"
        )
        assert errors.count("\n") == 1
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"input_length": -1}\n')
    assert "is a trace" not in report(broken, "--html", tmp_path / "r.html")[2]
