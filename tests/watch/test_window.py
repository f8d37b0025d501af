from __future__ import annotations

from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console

from flashstate.economics.price_file import shipped_presets
from flashstate.watch import sample as sampling
from flashstate.watch.sample import MetricsError, Sample, read_sample
from flashstate.watch.screen import Overlay, draw
from flashstate.watch.window import Away, Reading, Window
from tests.watch.server import Counts

PRICES = next(iter(shipped_presets().values()))


def make_sample(at_s: float, prompt: float, **changed: float) -> Sample:
    """Six tenths cached, a tenth as much output, a request for each 1,000 prompt tokens, half a second each."""
    requests = prompt / 1000
    values = {"cached_tokens": 0.6 * prompt, "output_tokens": 0.1 * prompt}
    values |= {"first_tokens": requests, "ttft_sum_s": requests / 2} | changed
    missed = {"placement": 0.0, "capacity": 0.2 * prompt, "dependency": 0.0}
    levels = {"running": 1, "waiting": 0, "states": 3}
    return Sample(at_s=at_s, prompt_tokens=prompt, kv_use=0.5, missed_tokens=missed, **levels, **values)


def test_a_page_of_two_engines_is_one_sample() -> None:
    counts = Counts()
    counts.serve(1000, 600, 50, 0.4, capacity=30)
    found = read_sample(counts.page(), 7.0)
    assert (found.prompt_tokens, found.cached_tokens, found.output_tokens) == (2000, 1200, 100)
    assert (found.first_tokens, found.ttft_sum_s) == (2, pytest.approx(0.8))
    assert (found.running, found.waiting, found.kv_use) == (4, 2, pytest.approx(0.6))
    assert found.missed_tokens == {"capacity": 60}
    assert found.states is None
    assert read_sample(Counts(ours=False).page() + "vllm:prompt_tokens_total 1\n", 0.0).missed_tokens is None


def test_pages_of_others_are_refused() -> None:
    with pytest.raises(MetricsError, match="not a vLLM server"):
        read_sample("up 1\n", 0.0)
    with pytest.raises(MetricsError, match="no Prometheus page"):
        read_sample("<html>hello</html>\n", 0.0)
    with pytest.raises(MetricsError, match="num_requests_running is nan: must be a finite number"):
        read_sample("vllm:prompt_tokens_total 1\nvllm:num_requests_running NaN\n", 0.0)


def test_vllm_has_the_metrics_that_are_read() -> None:
    """Of the version that is installed."""
    spec = find_spec("vllm")
    assert spec is not None and spec.origin is not None
    source = (Path(spec.origin).parent / "v1" / "metrics" / "loggers.py").read_text()
    names = [
        value for value in vars(sampling).values() if isinstance(value, str) and value.startswith("vllm:")
    ]
    assert len(names) == 8
    for name in names:
        bare = name.removesuffix("_total").removesuffix("_sum").removesuffix("_count")
        assert f'"{bare}"' in source


def test_rates_are_of_the_window() -> None:
    window = Window(10.0)
    first = window.add(make_sample(0.0, 1000))
    assert (first.seconds, first.prompt_tokens_per_min, first.profit_per_gpu_hour(PRICES, 1)) == (
        0.0,
        None,
        None,
    )
    window.add(make_sample(5.0, 2000))
    reading = window.add(make_sample(10.0, 5000))
    assert (reading.seconds, reading.prompt_tokens_per_min) == (10.0, 24_000)
    assert (reading.hit_rate, reading.ttft_s) == (pytest.approx(0.6), pytest.approx(0.5))
    assert reading.missed_tokens_per_min == pytest.approx({"placement": 0, "capacity": 4800, "dependency": 0})
    later = window.add(make_sample(15.0, 6000))
    assert (later.seconds, later.prompt_tokens_per_min) == (10.0, 24_000)  # from 5 s on
    # 1.44M prompt tokens an hour at 0.15 * 0.4 + 0.03 * 0.6, a tenth as many at 0.50, less 8.60.
    assert later.profit_per_gpu_hour(PRICES, 1) == pytest.approx(1.44 * 0.078 + 0.144 * 0.5 - 8.6)


def test_a_server_that_was_restarted_counts_from_there() -> None:
    window = Window(60.0)
    window.add(make_sample(0.0, 9000))
    window.add(make_sample(2.0, 10_000))
    reading = window.add(make_sample(4.0, 100))
    assert (reading.seconds, reading.prompt_tokens_per_min) == (0.0, None)
    assert window.add(make_sample(6.0, 200)).prompt_tokens_per_min == 3000


def test_a_quiet_window_has_rates_of_nothing() -> None:
    window = Window(10.0)
    window.add(make_sample(0.0, 1000))
    reading = window.add(make_sample(2.0, 1000))
    assert (reading.prompt_tokens_per_min, reading.hit_rate, reading.ttft_s) == (0.0, None, None)
    assert reading.profit_per_gpu_hour(PRICES, 2) == -8.6


def test_three_servers_fit_80_columns() -> None:
    window = Window(10.0)
    window.add(make_sample(0.0, 0))
    busy = window.add(make_sample(10.0, 123_456_789))
    idle = Reading(0.0, 0, 0, 0.0, None)
    servers = {
        "http://host-of-a-long-name.cluster.example:8000": busy,
        "http://b:1": idle,
        "http://c:2": Away("no answer for 5 s"),
    }
    console = Console(width=80, no_color=True)
    with console.capture() as captured:
        console.print(draw(servers, Overlay(PRICES, 1), 10.0, datetime(2026, 11, 30, tzinfo=UTC)))
    text = captured.get()
    assert max(map(len, text.splitlines())) <= 80
    for shown in ("740.74 M", "60.0 %", "0.50 s", "148.15 M", "away", "00:00:00, rates over the last 10 s"):
        assert shown in text
    assert "…" not in text
