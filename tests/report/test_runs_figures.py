from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashstate.economics.price_file import shipped_presets
from flashstate.report.runs.figures import Costs, figures
from flashstate.report.runs.lanes import MOST_LANES, lanes_of, parts, sessions_shown, words
from flashstate.report.runs.read import read_runs
from flashstate.report.runs.request import Run
from flashstate.report.runs.series import slices, width_s
from tests.report.records import make_bench, make_record, make_records, write_lines

COSTS = Costs(next(iter(shipped_presets().values())), 2)


def make_run(tmp_path: Path, rows: Sequence[Any]) -> Run:
    found = read_runs(write_lines(tmp_path / "r.jsonl", rows), "engine")
    assert found is not None
    return found[0]


def test_a_run_in_figures(tmp_path: Path) -> None:
    rows = [*make_records(2, 10), make_record("s1", 10, 57.0, error="http 500: no", cached_tokens=0)]
    f = figures(make_run(tmp_path, rows), COSTS)
    assert (f.sessions, f.requests, dict(f.failed)) == (2, 20, {"http 500": 1})
    assert f.seconds == 60.0
    assert (f.prompt_tokens, f.cached_tokens, f.recomputed_tokens) == (20_000, 12_000, 4_000)
    assert (f.hit_rate, f.prompt_tokens_per_min, f.output_tokens_per_min) == (0.6, 20_000, 2_400)
    assert (f.ttft_s.p50, f.latency_s.p90) == (1.0, 3.0)
    # 1.2M prompt tokens an hour at 0.15 * 0.4 + 0.03 * 0.6, 0.144M output tokens at 0.50, over two GPUs.
    assert f.profit_per_gpu_hour == pytest.approx((1.2 * 0.078 + 0.144 * 0.5) / 2 - 8.6)


def test_only_measured_requests_count(tmp_path: Path) -> None:
    rows = [make_record("s0", turn, 6.0 * turn, measured=1 <= turn <= 6) for turn in range(10)]
    run = make_run(tmp_path, rows)
    assert (figures(run, COSTS).requests, figures(run, COSTS).seconds) == (6, 33.0)
    f = figures(replace(run, measured_s=30.0), COSTS)
    assert (f.seconds, f.prompt_tokens_per_min) == (30.0, 12_000)


def test_what_nobody_counted_is_not_known(tmp_path: Path) -> None:
    f = figures(make_run(tmp_path, [make_bench(4)]), COSTS)
    assert (f.hit_rate, f.recomputed_tokens, f.profit_per_gpu_hour, f.sessions) == (None, None, None, None)
    assert set(f.missed_tokens.values()) == {None}
    assert f.prompt_tokens == 400


def test_sessions_that_follow_each_other_are_not_open_at_once(tmp_path: Path) -> None:
    rows = [
        make_record("a", 0, 0.0),
        make_record("a", 1, 6.0),
        make_record("b", 0, 9.0),
        make_record("c", 0, 7.0),
    ]
    assert make_run(tmp_path, rows).concurrent_sessions == 2


def test_slices_add_up_to_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, make_records(2, 10))
    width = width_s([run])
    cut = slices(run, width)
    assert width == 10.0  # 58 seconds in the fewest slices, six
    assert sum(part.seconds for part in cut) == pytest.approx(58.0)
    assert sum(part.prompt_tokens_per_min * part.seconds / 60 for part in cut) == pytest.approx(20_000)
    assert sum(part.output_tokens_per_min * part.seconds / 60 for part in cut) == pytest.approx(2_400)
    assert {part.hit_rate for part in cut} == {0.6}
    assert {part.ttft_s for part in cut} == {1.0}
    assert all(part.missed_tokens_per_min("capacity") is None for part in cut)


@pytest.mark.parametrize("last_s", [0.0, 0.004, 7.0, 3_000.0, 2e5, 1e9])
def test_there_are_never_too_many_slices(last_s: float, tmp_path: Path) -> None:
    rows = [make_record(turn=n, start_s=last_s * n / 300, end_s=last_s * n / 300) for n in range(301)]
    run = make_run(tmp_path, rows)
    cut = slices(run, width_s([run]))
    assert 1 <= len(cut) <= 50
    assert sum(len(part.first) for part in cut) >= 0.95 * 301


def test_a_bar_is_its_prompt(tmp_path: Path) -> None:
    missed = {"placement": 50, "capacity": 0, "dependency": 100}
    rows = [
        make_record(turn=0),
        make_record(turn=1, start_s=6.0, missed_tokens=missed),
        make_record(turn=2, start_s=12.0, cached_tokens=None),
        make_record(turn=3, start_s=18.0, error="stall: nothing for 5 s", ttft_s=None),
        make_record(turn=4, start_s=24.0, cached_tokens=2000, ideal_tokens=3000),
    ]
    run = make_run(tmp_path, rows)
    plain, known, silent, failed, odd = (parts(request) for request in run.requests)
    assert plain["resumed"] == 600 and plain["recomputed"] == 200 and plain["new"] == 200
    assert (known["placement"], known["dependency"], known["recomputed"], known["new"]) == (50, 100, 50, 200)
    assert (silent, failed) == ({"unknown": 1000}, {"failed": 1000})
    assert {sum(found.values()) for found in (plain, known, silent, failed, odd)} == {1000}
    assert words(run.requests[1]) == (
        "s0, turn 1 (extends): resumed at 600 of 1,000 prompt tokens (60.0 %), 200 computed again "
        "(placement 50, dependency 100); TTFT 1.00 s, took 3.00 s"
    )
    assert words(run.requests[3]) == "s0, turn 3 (extends): stall: nothing for 5 s"


def test_lanes_are_those_that_lost_most(tmp_path: Path) -> None:
    rows = [make_record(f"s{n}", 0, float(n), cached_tokens=800 - n) for n in range(50)]
    rows.append(make_record("s49", 1, 60.0, agent="sub"))
    run = make_run(tmp_path, rows)
    shown = sessions_shown([run])
    lanes = list(lanes_of(run, shown))
    assert len(lanes) == MOST_LANES
    assert shown[0] == "s31" and lanes[-2:] == [("s49", "main"), ("s49", "sub")]
