from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flashstate.traces.parquet import read_parquet
from flashstate.traces.session import About, Agent, Session
from flashstate.traces.stats import tables
from flashstate.traces.stats.collect import Collector
from flashstate.traces.stats.figures import number, part_of, ratio, share, spread
from flashstate.traces.stats.show import as_json
from flashstate.traces.weka import read_weka
from tests.traces.made import SMALL, make_session, make_turns, shared_traces

SECTIONS = {
    "Comparison with the reference article": tables.comparison,
    "Sizes": tables.sizes,
    "Context edits (later requests that do not start with the whole previous prompt)": tables.edits,
    "Oddities (counts)": tables.oddities,
}


def texts(column: tables.Column) -> dict[str, str]:
    return {label: figure.text for label, figure in column.items()}


def documented() -> dict[str, list[list[str]]]:
    """The tables of STATS.md by heading: rows of cells, the header first."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in shared_traces("STATS.md").read_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("|") and not set(line) <= set("|- "):
            found.setdefault(heading, []).append([cell.strip(" *") for cell in line.strip("|").split("|")])
    return found


def test_the_real_figures_are_exact() -> None:
    expected = documented()
    dev = Collector().add_all(read_parquet(shared_traces("dev")))
    checked = 0
    for heading, make in SECTIONS.items():
        header, *rows = expected[heading]
        column = {row[0]: row[header.index("dev")] for row in rows}
        found = {label: text for label, text in texts(make(dev)).items() if label in column}
        assert found == column
        checked += len(column)
    (_, *names), *rows = expected["Distributions: dev"]
    spreads = tables.distributions(dev)
    assert {row[0]: row[1:] for row in rows} == {
        label: [column[name].text for name in names] for label, column in spreads.items()
    }
    checked += sum(len(row) - 1 for row in rows)
    assert checked == 257


def test_a_small_session() -> None:
    collected = Collector().add_all([read_weka(SMALL)])
    found = {name: texts(make(collected)) for name, make in tables.TABLES.items()}
    assert found["Comparison"] == {
        "traces": "1",
        "requests": "8",
        "mean prompt": "260",  # (200 + 320 + 400 + 260 + 290 + 150 + 300 + 160) / 8
        "median prompt": "275",
        "mean prompt, full blocks only": "240",
        "median prompt, full blocks only": "256",
        "median output": "16",
        "later requests": "5",
        "later requests that start with the previous prompt": "80.00%",
        "same, main agents only": "75.00%",
        "same, allowing a changed last block": "80.00%",
    }
    sizes = found["Sizes"]
    assert (sizes["requests_main"], sizes["requests_subagent"], sizes["subagents"]) == ("5", "3", "2")
    assert sizes["block hit vs previous request"] == "56.67%"  # 17 of 30
    # The first block of the second sub-agent, too.
    assert sizes["block hit vs all earlier requests of the trace"] == "60.00%"
    edits = found["Context edits"]
    assert (edits["edits"], edits["cut back by 2-4 blocks"]) == ("1", "1 (100.0%)")
    assert edits["cut tokens max"] == "192"
    assert edits["cut as a share of the previous prompt, median"] == "0.480"
    assert edits["prompt after the edit is shorter"] == "1"
    assert found["Oddities"]["think_time>dt(prev has no api_time)"] == "1"
    assert found["Composition"]["sub-agent types: Explore"] == "1"


@pytest.mark.parametrize(
    ("kept", "where"),
    [
        (0, "zero blocks kept"),
        (8, "inside tool+system prefix"),
        (9, "at the end of tool+system (-1..+16 blocks)"),
        (26, "at the end of tool+system (-1..+16 blocks)"),
        (27, "in conversation"),
    ],
)
def test_where_an_edit_diverges(kept: int, where: str) -> None:
    turns = make_turns([range(1, 40), [*range(1, kept + 1), 100]])
    agent = Agent("main", None, turns, About(tool_tokens=400, system_tokens=280))  # 10 full blocks
    edits = texts(tables.edits(Collector().add_all([Session("s", agent, ())])))
    points = {label: text for label, text in edits.items() if label.startswith("divergence point: ")}
    assert [label for label, text in points.items() if text == "1"] == [f"divergence point: {where}"]


def test_an_edit_may_go_back_to_an_older_prompt() -> None:
    collected = Collector().add_all([make_session("s", [(1, 2, 3), (1, 7), (1, 2, 3, 4)])])
    assert texts(tables.edits(collected))["edits whose prefix reaches further in an older request"] == "1"
    assert texts(tables.sizes(collected))["block hit vs all earlier requests of the trace"] == "44.44%"


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        ({"api_s": 11.0, "output_types": ("text",)}, "overlap_prev_request_by_<=1s"),
        ({"api_s": 11.5}, "overlap_prev_request_by_>1s"),
        ({"api_s": 1.0, "think_s": 7.9}, "think_time_off_from_t_by_>1s(prev has api_time)"),
        ({"think_s": 10.5}, "think_time>dt(prev has no api_time)"),
        ({"think_s": 0.0}, "think_time_zero"),
        ({"prompt_tokens": 129}, "input_tokens!=64*len(hash_ids)"),
        ({"time_s": 3.0}, "t_equal_within_agent"),
    ],
)
def test_oddities_are_counted(fields: dict[str, Any], label: str) -> None:
    plain = texts(tables.oddities(Collector().add_all([make_session()])))
    odd = texts(tables.oddities(Collector().add_all([make_session(**fields)])))
    assert plain[label] == "0"
    assert odd[label] in ("1", "2")


def test_nothing_divided_by_nothing() -> None:
    empty = Collector()
    assert texts(tables.comparison(empty))["later requests that start with the previous prompt"] == "-"
    assert texts(tables.edits(empty))["cut back by 1 block"] == "0"
    assert tables.distributions(empty)["api_time"]["median"].text == "-"
    assert as_json({"none": empty})["none"]["Distributions"]["api_time"]["max"] is None


def test_figures_read_as_people_write_them() -> None:
    assert [number(value).text for value in (None, 0, 999, 1000, 1234.5, 440.061, 45.5, -0.105)] == [
        "-", "0", "999", "1,000", "1,234", "440.06", "45.5", "-0.1",
    ]  # fmt: skip
    assert number(8.684999999999999).text == "8.69"  # 8.685 with noise
    assert (share(1, 3).text, part_of(5, 9).text, ratio(0.0005).text) == ("33.33%", "5 (55.6%)", "0.001")


def test_percentiles_are_interpolated() -> None:
    figures = spread([4.0, 1.0, 3.0, 2.0])
    assert [figures[name].value for name in ("n", "mean", "p10", "median", "p99", "max")] == [
        4, 2.5, 1.3, 2.5, 3.97, 4.0,
    ]  # fmt: skip


def test_json_has_every_figure() -> None:
    document = as_json({Path(SMALL).name: Collector().add_all([read_weka(SMALL)])})["small.json"]
    assert document["Comparison"]["later requests that start with the previous prompt"] == pytest.approx(0.8)
    assert document["Distributions"]["output tokens"]["max"] == 40
    assert document.keys() == {*tables.TABLES, "Distributions"}
