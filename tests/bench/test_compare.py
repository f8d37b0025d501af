"""What is made of the runs' figures: known answers."""

from __future__ import annotations

import math

import pytest

from flashstate.bench.compare import PROMPT, TTFT_P90, Comparison
from flashstate.bench.result import Result, RunKey
from flashstate.bench.table import ratio_text


def make_run(
    engine: str, sessions: int, repeat: int, prompt: float, hits: float | None = 0.5, ttft: float | None = 1.0
) -> tuple[RunKey, Result]:
    key = RunKey(engine, sessions, repeat)
    summary = {
        "prompt_tokens_per_s": prompt,
        "hit_rate": hits,
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
