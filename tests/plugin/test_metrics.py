"""The counters' way from the scheduler into /metrics and the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

pytest.importorskip("vllm")

from prometheus_client import REGISTRY
from vllm.v1.metrics.stats import SchedulerStats

from flashstate.core.cache import HybridCache
from flashstate.core.path import Tokens
from flashstate.core.state import REQUEST_END, Checkpoint
from flashstate.plugin.metrics import (
    METRICS,
    PREFIX,
    FlashStatLogger,
    attach,
    log_line,
    pack,
    snapshot,
    unpack,
)
from flashstate.plugin.settings import SETTINGS_VARIABLE, SWITCH_VARIABLE, Settings

BLOCK = 4


def make_cache() -> HybridCache:
    """A cache that saw one request of ten tokens resume at seven, and one state captured."""
    cache = HybridCache(block_tokens=BLOCK, policy=Settings().make_policy(), history_tokens=1000)
    path = Tokens(range(10), BLOCK)
    cache.computed("r", path, 9, 0.0)
    kept = cache.capture(path, Checkpoint(7, (5, 6), REQUEST_END), [(1,), (2,)], 0.0, room=True)
    assert kept.kept
    cache.observe(path, 7)
    cache.skip("nan_in_logits")
    return cache


@pytest.fixture
def switched_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(SWITCH_VARIABLE, "1")
    monkeypatch.delenv(SETTINGS_VARIABLE, raising=False)
    yield
    for collector in {c for name, c in REGISTRY._names_to_collectors.items() if name.startswith(PREFIX)}:
        REGISTRY.unregister(collector)


def sample(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"{PREFIX}{name}", {"engine": "0", **labels})


def test_what_is_packed_comes_out_again() -> None:
    values = snapshot(make_cache())
    values["missed_seconds"] = {"placement": 1.25, "capacity": 3e-6, "dependency": 0.0}
    values["watermark"] = 4.2e-7
    flat = {"another:stage": 3, **pack(values)}
    assert all(type(number) is int for number in flat.values())
    got = unpack(flat)
    assert flat == {"another:stage": 3}
    for name, value in values.items():
        wanted = value if isinstance(value, dict) else {"": value}
        assert {label: got[name, label] for label in wanted} == pytest.approx(wanted)


def test_every_value_of_a_snapshot_is_a_metric() -> None:
    assert set(snapshot(make_cache())) == {metric.name for metric in METRICS}


@pytest.mark.usefixtures("switched_on")
def test_logger_serves_what_the_scheduler_counted() -> None:
    stats = attach(SchedulerStats(), make_cache())
    assert stats is not None
    logger = FlashStatLogger(None, [0])
    assert sample("requests_total") == 0
    logger.record(stats, None)
    assert not stats.num_kv_fetch_reqs_by_stage
    assert sample("requests_total") == 1
    assert sample("prompt_tokens_total") == 10
    assert sample("resumed_tokens_total") == 7
    assert sample("ideal_tokens_total") == 9
    assert sample("missed_tokens_total", reason="placement") == 2
    assert sample("missed_tokens_total", reason="capacity") == 0
    assert sample("captures_total", kind="request_end") == 1
    assert sample("captures_skipped_total", reason="nan_in_logits") == 1
    assert sample("resident_states") == 1
    assert sample("resident_blocks") == 4


@pytest.mark.usefixtures("switched_on")
def test_counters_grow_by_what_is_new_and_engines_stay_apart() -> None:
    logger, cache = FlashStatLogger(None, [0, 1]), make_cache()
    logger.record(attach(SchedulerStats(), cache), None, engine_idx=0)
    logger.record(attach(SchedulerStats(), cache), None, engine_idx=0)
    cache.observe(Tokens(range(10), BLOCK), 0)
    logger.record(attach(SchedulerStats(), cache), None, engine_idx=0)
    logger.record(attach(SchedulerStats(), make_cache()), None, engine_idx=1)
    logger.record(None, None)
    assert sample("requests_total") == 2
    assert sample("requests_total", engine="1") == 1


@pytest.mark.usefixtures("switched_on")
def test_log_line_says_what_happened_since_the_last(caplog: pytest.LogCaptureFixture) -> None:
    logger, cache = FlashStatLogger(None, [0]), make_cache()
    logging.getLogger("vllm.flashstate").addHandler(caplog.handler)
    with caplog.at_level(logging.INFO, logger="vllm.flashstate"):
        logger.record(attach(SchedulerStats(), cache), None)
        logger.log()
        logger.log()
    logging.getLogger("vllm.flashstate").removeHandler(caplog.handler)
    (line,) = [record.getMessage() for record in caplog.records if "flashstate" in record.getMessage()][:1]
    assert "resumed 70.0% of 10 prompt tokens (ideal 90.0%)" in line
    assert "1 states in 4 blocks" in line
    assert len({record.getMessage() for record in caplog.records}) == 1


def test_log_line_without_prompts_does_not_divide_by_zero() -> None:
    assert "resumed 0.0%" in log_line({}, {})


@pytest.mark.parametrize("value", [None, "", "0", "off"])
def test_off_means_no_series_and_untouched_stats(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv(SWITCH_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH_VARIABLE, value)
    before = set(REGISTRY._names_to_collectors)
    stats = SchedulerStats(num_kv_fetch_reqs_by_stage={f"{PREFIX}requests": 1, "stage": 2})
    logger = FlashStatLogger(None, [0])
    logger.record(stats, None)
    logger.log()
    assert set(REGISTRY._names_to_collectors) == before
    assert stats.num_kv_fetch_reqs_by_stage == {f"{PREFIX}requests": 1, "stage": 2}
