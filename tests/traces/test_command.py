from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from flashstate.cli import app
from flashstate.traces.parquet_writer import write_parquet
from flashstate.traces.read import read_sessions
from tests.traces.made import SMALL, make_session, shared_traces


def trace(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["trace", *map(str, arguments)])


def line(text: str, label: str) -> list[str]:
    """The cells of the line that starts with `label`."""
    (found,) = (row for row in text.splitlines() if row.startswith(label))
    return found.removeprefix(label).split()


def test_stats_of_one_set() -> None:
    result = trace("stats", SMALL)
    assert result.exit_code == 0
    assert line(result.stdout, "requests  ") == ["8", "98,827"]
    assert line(result.stdout, "output tokens") == [
        "8",
        "18.62",
        "7",
        "11.5",
        "16",
        "26.25",
        "33",
        "36.5",
        "39.3",
        "40",
    ]
    assert line(result.stdout, "gap t[i]-t[i-1]-api_time[i-1]")[0] == "4"
    assert "…" not in result.stdout  # nothing is cut, however narrow the terminal


def test_stats_side_by_side(tmp_path: Path) -> None:
    write_parquet([make_session()], tmp_path / "made")
    result = trace("stats", SMALL, tmp_path / "made")
    assert line(result.stdout, "requests  ") == ["8", "2", "98,827"]
    assert line(result.stdout, "edits  ") == ["1", "0"]
    assert line(result.stdout, "models: m") == ["8", "0"]
    heads = [row.split() for row in result.stdout.splitlines()]
    assert ["small.json", "made"] in heads


def test_two_sets_of_one_name_have_their_paths(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        shutil.copy(SMALL, tmp_path / folder)
    document = json.loads(
        trace("stats", "--json", tmp_path / "a" / SMALL.name, tmp_path / "b" / SMALL.name).stdout
    )
    assert list(document) == [str(tmp_path / folder / SMALL.name) for folder in "ab"]


def test_stats_as_json() -> None:
    document = json.loads(trace("stats", SMALL, "--json").stdout)
    assert document["small.json"]["Comparison"]["requests"] == 8
    assert document["small.json"]["Distributions"]["output tokens"]["median"] == 16


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_a_plot(tmp_path: Path, suffix: str) -> None:
    other = tmp_path / "a & b"
    write_parquet([make_session("one", [range(n) for n in range(3, 30)], api_s=1.5)], other)
    path = tmp_path / f"plot.{suffix}"
    assert trace("stats", SMALL, other, "--plot", path).exit_code == 0
    drawing = path.read_text()
    root = ElementTree.fromstring(drawing[drawing.index("<svg") :])
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"small.json", "a & b", "prompt, tokens", "requests of a trace", "100%"} <= texts
    lines = [element.get("class") for element in root.iter("{http://www.w3.org/2000/svg}path")]
    assert (lines.count("line set0"), lines.count("line set1")) == (
        7,
        6,
    )  # one without edits; each has its key
    assert not re.search("nan|inf", drawing)


def test_a_plot_of_another_format_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    result = trace("stats", tmp_path / "none", "--plot", tmp_path / "plot.png")
    assert result.exit_code == 1
    assert result.stderr == f"flashstate: {tmp_path}/plot.png: must end with .svg or .html\n"


def test_an_error_is_one_line(tmp_path: Path) -> None:
    result = trace("stats", tmp_path / "none.json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"flashstate: {tmp_path}/none.json: No such file or directory\n"


def test_bad_records_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    one = json.dumps(json.loads(SMALL.read_text()))
    path.write_text("\n".join([one, *["{}"] * 12, one]))
    refused = trace("stats", path)
    assert (refused.exit_code, refused.stderr) == (1, f"flashstate: {path}:2: requests: is missing\n")
    result = trace("stats", path, "--skip-bad", "--json")
    assert json.loads(result.stdout)["t.jsonl"]["Comparison"]["traces"] == 2
    assert result.stderr.splitlines() == [
        *[f"skipped: {path}:{number}: requests: is missing" for number in range(2, 12)],
        "12 broken records skipped",
    ]


def test_all_bad_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("{}\n{}\n")
    result = trace("stats", path, "--skip-bad")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == f"flashstate: {path}: holds no session that can be read"


def test_convert_there_and_back(tmp_path: Path) -> None:
    tables, rows = tmp_path / "tables", tmp_path / "rows.jsonl"
    result = trace("convert", SMALL, tables, "--to", "parquet")
    assert (result.exit_code, result.stderr) == (0, f"{tables}: 1 sessions\n")
    assert trace("convert", tables, rows, "--to", "mooncake").exit_code == 0
    assert {session.name for session in read_sessions(rows)} == {
        "small",
        "small/agent_001",
        "small/agent_002",
    }
    again = trace("convert", SMALL, tables, "--to", "parquet")
    assert again.exit_code == 1
    assert (
        again.stderr == f"flashstate: {tables}/requests.parquet: exists already: name another, or remove it\n"
    )


def test_an_open_loop_is_for_mooncake(tmp_path: Path) -> None:
    assert trace("convert", SMALL, tmp_path / "o.jsonl", "--to", "mooncake", "--open-loop").exit_code == 0
    assert "session_id" not in (tmp_path / "o.jsonl").read_text()
    result = trace("convert", SMALL, tmp_path / "p", "--to", "parquet", "--open-loop")
    assert result.exit_code == 1
    assert result.stderr == "flashstate: --open-loop is for --to mooncake\n"


def test_a_trace_is_scaled_to_a_small_machine(tmp_path: Path) -> None:
    rows = tmp_path / "small.jsonl"
    scales = ("--token-scale", "10", "--time-scale", "4")
    assert trace("convert", SMALL, rows, "--to", "mooncake", *scales).exit_code == 0
    before, after = (next(iter(read_sessions(path))).main.turns for path in (SMALL, rows))
    assert [turn.prompt_tokens for turn in after] == [turn.prompt_tokens // 10 for turn in before]
    assert [turn.gap_s for turn in after] == pytest.approx([turn.gap_s / 4 for turn in before])
    result = trace("convert", SMALL, tmp_path / "none", "--to", "mooncake", "--token-scale", "0")
    assert (result.exit_code, result.stderr) == (1, "flashstate: --token-scale 0: must be above 0\n")


def test_the_real_traces() -> None:
    result = trace("stats", shared_traces("dev"))
    assert line(result.stdout, "later requests that start with the previous prompt") == ["93.14%", "84.6%"]
    assert line(result.stdout, "cut back by 1 block") == ["1,398", "(57.8%)"]
