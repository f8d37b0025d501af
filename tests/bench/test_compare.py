"""What is made of the runs' figures: known answers."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from rich.console import Console

from flashstate.bench.compare import PROMPT, TTFT_P90, Comparison
from flashstate.bench.engine import chosen
from flashstate.bench.findings import findings
from flashstate.bench.options import Options
from flashstate.bench.result import Result, RunKey
from flashstate.bench.table import ratio_text, tables
from flashstate.replay.options import Options as ReplayOptions


def make_run(
    engine: str, sessions: int, repeat: int, prompt: float, hits: float | None = 0.5, ttft: float | None = 1.0
) -> tuple[RunKey, Result]:
    key = RunKey(engine, sessions, repeat)
    summary = {
        "prompt_tokens_per_s": prompt,
        "output_tokens_per_s": prompt / 100,
        "hit_rate": hits,
        "ideal_hit_rate": None,
        "latency_s": None,
        "ttft_s": None if ttft is None else {"p50": ttft / 2, "p90": ttft},
    }
    return key, Result(key, summary, None, None, None)


def test_a_ratio_s_interval_is_two_standard_errors_of_the_logarithms() -> None:
    found = Comparison(
        dict([make_run("a", 8, k, p) for k, p in enumerate((200, 400, 800))])
        | dict([make_run("b", 8, k, 100) for k in range(3)])
    )
    ratio = found.ratio("a", "b", 8, PROMPT)
    assert ratio is not None and ratio.repeats == 3
    assert ratio.mean == pytest.approx(4)
    error = 2 * math.log(2) / math.sqrt(3)
    assert (ratio.low, ratio.high) == (
        pytest.approx(4 * math.exp(-error)),
        pytest.approx(4 * math.exp(error)),
    )
    assert ratio.is_significant is True
    assert ratio_text(ratio) == f"4.00x ({4 * math.exp(-error):.2f} - {4 * math.exp(error):.2f})*"


def test_repeats_are_paired() -> None:
    # Repeats differ widely, the engines do not: each repeat is compared with itself.
    found = Comparison(
        dict([make_run("a", 8, k, 1.1 * p) for k, p in enumerate((100, 1000))])
        | dict([make_run("b", 8, k, p) for k, p in enumerate((100, 1000))])
        | dict([make_run("b", 8, 2, 5)])  # that a has not made
    )
    ratio = found.ratio("a", "b", 8, PROMPT)
    assert ratio is not None and ratio.repeats == 2
    assert (ratio.low, ratio.high) == (pytest.approx(1.1), pytest.approx(1.1)) and ratio.is_significant


def test_one_repeat_has_no_interval_and_noise_no_star() -> None:
    found = Comparison(dict([make_run("a", 8, 0, 90), make_run("b", 8, 0, 100)]))
    ratio = found.ratio("a", "b", 8, PROMPT)
    assert ratio is not None and (ratio.low, ratio.is_significant) == (None, None)
    assert ratio_text(ratio) == "0.90x"
    noisy = Comparison(
        dict([make_run("a", 8, k, p) for k, p in enumerate((90, 110))])
        | dict([make_run("b", 8, k, 100) for k in range(2)])
    )
    ratio = noisy.ratio("a", "b", 8, PROMPT)
    assert ratio is not None and ratio.is_significant is False


def test_nothing_is_made_of_nothing() -> None:
    found = Comparison(dict([make_run("a", 8, 0, 0, None, None), make_run("b", 8, 0, 100)]))
    assert found.ratio("a", "b", 8, PROMPT) is None
    assert found.ratio("a", "b", 8, TTFT_P90) is None
    assert found.ratio("a", "b", 16, PROMPT) is None
    assert (
        found.spread("a", 8, "hit_rate") is None
        and found.best(["x"], 8) is None
        and found.knee("x", [8]) is None
    )


def test_stock_s_best_is_found_load_by_load() -> None:
    found = Comparison(
        dict(
            [
                make_run("plain", 8, 0, 100, 0.5),
                make_run("fine", 8, 0, 99.5, 0.6),  # within 1%: the hit rate decides
                make_run("plain", 16, 0, 100, 0.5),
                make_run("fine", 16, 0, 98, 0.6),
            ]
        )
    )
    assert [found.best(["plain", "fine"], load) for load in (8, 16)] == ["fine", "plain"]
    assert found.knee("plain", [8, 16]) == 8
    assert found.knee("fine", [8, 16]) == 8


def test_medians_and_ranges() -> None:
    found = Comparison(dict([make_run("a", 8, k, p, ttft=p) for k, p in enumerate((3, 1, 7))]))
    spread = found.spread("a", 8, "ttft_s.p50")
    assert spread is not None and (spread.median, spread.low, spread.high) == (1.5, 0.5, 3.5)
    assert spread.repeats == 3


def easy_repeats() -> Comparison:
    """As measured at 14 sessions: the first repeat was easy, and one setting was run on that one only."""
    return Comparison(
        dict([make_run("stock", 14, k, p, 0.8) for k, p in enumerate((1487, 972))])
        | dict([make_run("stock-match-unit-16", 14, 0, 1308, 0.9)])
        | dict([make_run("flashstate", 14, k, p) for k, p in enumerate((1338.3, 1069.2))])
    )


def test_a_setting_with_one_easy_repeat_does_not_win() -> None:
    found = easy_repeats()
    median = found.spread("stock", 14, PROMPT)
    assert median is not None and median.median < 1308  # by medians it would
    assert found.best(["stock", "stock-match-unit-16"], 14) == "stock"
    # Nor does it lose for having had a hard one only.
    hard = Comparison(
        dict([make_run("a", 14, k, p) for k, p in enumerate((1487, 972))])
        | dict([make_run("b", 14, 1, 1100), make_run("c", 16, 0, 9000)])
    )
    assert hard.best(["a", "b", "c"], 14) == "b"


def test_among_level_settings_hit_rates_of_shared_repeats_decide() -> None:
    found = Comparison(
        dict([make_run("a", 8, 0, 100, 0.5), make_run("a", 8, 1, 100, 0.9), make_run("b", 8, 0, 99.5, 0.6)])
    )
    assert found.best(["a", "b"], 8) == "b"


def test_ratios_of_repeats_weigh_alike() -> None:
    # By sums and medians "a" is ahead (1000 + 10 against 900 + 40); repeat by repeat it has 1.11 and 0.25 times b's.
    found = Comparison(
        dict([make_run("a", 8, k, p) for k, p in enumerate((1000, 10))])
        | dict([make_run("b", 8, k, p) for k, p in enumerate((900, 40))])
    )
    assert found.best(["a", "b"], 8) == "b"
    nothing = Comparison(dict([make_run("a", 8, 0, 0), make_run("b", 8, 0, 1)]))
    assert nothing.best(["a", "b"], 8) == "b"


def test_without_a_repeat_in_common_there_is_no_best_and_no_knee() -> None:
    found = Comparison(dict([make_run("a", 8, 0, 100), make_run("b", 8, 1, 50), make_run("a", 16, 1, 70)]))
    assert found.best(["a", "b"], 8) is None and found.ratio("a", "b", 8, PROMPT) is None
    assert found.knee("a", [8, 16]) is None and found.knee("a", [8, 12]) == 8


def test_a_load_with_one_easy_repeat_is_no_knee() -> None:
    found = Comparison(
        dict([make_run("a", 14, k, p) for k, p in enumerate((1500, 900))])
        | dict([make_run("a", 21, 0, 1400)])
    )
    assert found.knee("a", [14, 21]) == 14


def make_options(engines: str) -> Options:
    replay = ReplayOptions(("http://localhost",), 1)
    return Options(Path("out"), chosen(engines), (14,), 2, "gdn", 844, 320, replay)


def shown(found: Comparison, options: Options) -> str:
    console = Console(file=io.StringIO(), width=400, color_system=None)
    with console.capture() as capture:
        for table in tables(found, options, 400):
            console.print(table)
    return capture.get()


def test_missing_repeats_are_said() -> None:
    found, options = easy_repeats(), make_options("stock,stock-match-unit-16,stock-dense,flashstate")
    text = shown(found, options)
    assert "flashstate / stock-best (stock) " in text
    assert "Repeats are missing: at 14 sessions stock-match-unit-16 (1 of 2). Each repeat has" in text
    assert "stock-dense (" not in text  # it was not run: "-" says so
    said = findings(found, options)
    assert said["stock_best"] == {14: "stock"}
    assert said["figures"]["stock-match-unit-16"][14][PROMPT]["repeats"] == 1
    one, both = (
        said["ratios"][f"flashstate / {base}"][14][PROMPT] for base in ("stock-match-unit-16", "stock")
    )
    assert one["repeats"] == 1 and one["mean"] == pytest.approx(1338.3 / 1308) and one["low"] is None
    assert both["repeats"] == 2 and both["mean"] == pytest.approx(math.sqrt(0.9 * 1.1))


def test_nothing_is_said_where_no_repeat_is_missing() -> None:
    assert "Repeats are missing" not in shown(easy_repeats(), make_options("stock,flashstate"))
