"""Our counters in vLLM's own /metrics and periodic log.

The scheduler counts in the engine process; Prometheus is served by the API process. The counts travel in the
scheduler's own stats, as integers in `num_kv_fetch_reqs_by_stage`: the one field that any other reader asks only
for names it knows, so that nothing breaks where this logger is not loaded. `FlashStatLogger` takes them out again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client import Counter, Gauge
from vllm.logger import init_logger
from vllm.v1.metrics.loggers import AggregateStatLoggerBase

from flashstate.core.counters import MISS_REASONS
from flashstate.plugin.settings import OFF, read_settings

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.metrics.stats import IterationStats, MultiModalCacheStats, SchedulerStats

    from flashstate.core.cache import HybridCache

logger = init_logger("vllm.flashstate")

PREFIX = "flashstate:"
_SEPARATOR = "|"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of ours: its name, what it says, its label, and the real value of one transported integer."""

    name: str
    help: str
    label: str | None = None
    unit: float = 1
    is_gauge: bool = False


METRICS = (
    Metric("requests", "Requests started (resumptions after preemption apart)."),
    Metric("prompt_tokens", "Prompt tokens of these requests."),
    Metric("resumed_tokens", "Prompt tokens not computed, because a request resumed after them."),
    Metric("ideal_tokens", "Prompt tokens that any earlier request had computed."),
    Metric("missed_tokens", "Prompt tokens computed again, by cause.", "reason"),
    Metric("missed_seconds", "Their prefill time by the cost model, by cause.", "reason", 1e-6),
    Metric("captures", "States kept, by where in the request they were taken.", "kind"),
    Metric("captures_skipped", "States not trusted and so not kept, by doubt.", "reason"),
    Metric("admissions_refused", "States not kept because they would have been evicted next."),
    Metric("evictions", "Units evicted, by tier.", "tier"),
    Metric("resident_states", "States cached.", is_gauge=True),
    Metric("resident_blocks", "Blocks they hold.", is_gauge=True),
    Metric("watermark", "The highest priority evicted so far, in prefill seconds a block.", None, 1e-9, True),
)
_UNITS = {metric.name: metric.unit for metric in METRICS}


def snapshot(cache: HybridCache) -> dict[str, Any]:
    """Everything `METRICS` reports, by name; labelled ones as dicts."""
    return {
        **cache.counters.snapshot(),
        "resident_states": len(cache),
        "resident_blocks": cache.resident_blocks,
        "watermark": cache.policy.watermark,
    }


def pack(values: dict[str, Any]) -> dict[str, int]:
    """A snapshot as flat integers."""
    flat: dict[str, int] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat.update({f"{PREFIX}{name}{_SEPARATOR}{k}": round(v / _UNITS[name]) for k, v in value.items()})
        else:
            flat[f"{PREFIX}{name}"] = round(value / _UNITS[name])
    return flat


def unpack(flat: dict[str, int]) -> dict[tuple[str, str], float]:
    """Take our integers out of `flat` (mutates it): real values by (name, label value or '')."""
    values = {}
    for key in [key for key in flat if key.startswith(PREFIX)]:
        name, _, label = key.removeprefix(PREFIX).partition(_SEPARATOR)
        values[name, label] = flat.pop(key) * _UNITS[name]
    return values


def attach(stats: SchedulerStats | None, cache: HybridCache) -> SchedulerStats | None:
    """Put a snapshot of `cache` into `stats`."""
    if stats is not None:
        stats.num_kv_fetch_reqs_by_stage.update(pack(snapshot(cache)))
    return stats


class FlashStatLogger(AggregateStatLoggerBase):
    """Serves `METRICS` for every engine, and a line of them in the periodic log. Silent when switched off."""

    def __init__(self, vllm_config: VllmConfig, engine_indexes: list[int]) -> None:
        self.is_on = read_settings().mode != OFF
        self._last: dict[int, dict[tuple[str, str], float]] = {index: {} for index in engine_indexes}
        self._logged: dict[int, dict[tuple[str, str], float]] = {}
        self._series: dict[str, Counter | Gauge] = {}
        if not self.is_on:
            return
        for metric in METRICS:
            labels = ["engine", *([metric.label] if metric.label else [])]
            if metric.is_gauge:
                gauge = Gauge(PREFIX + metric.name, metric.help, labels, multiprocess_mode="mostrecent")
                self._series[metric.name] = gauge
            else:
                self._series[metric.name] = Counter(PREFIX + metric.name, metric.help, labels)
        for index in engine_indexes:
            for reason in MISS_REASONS:
                self._series["missed_tokens"].labels(str(index), reason)
            for metric in METRICS:
                if metric.label is None:
                    self._series[metric.name].labels(str(index))

    def record(
        self,
        scheduler_stats: SchedulerStats | None,
        iteration_stats: IterationStats | None,
        mm_cache_stats: MultiModalCacheStats | None = None,
        engine_idx: int = 0,
    ) -> None:
        if not self.is_on or scheduler_stats is None:
            return
        values = unpack(scheduler_stats.num_kv_fetch_reqs_by_stage)
        last = self._last.setdefault(engine_idx, {})
        for (name, label), value in values.items():
            series = self._series[name].labels(str(engine_idx), *([label] if label else []))
            if isinstance(series, Gauge):
                series.set(value)
            elif value > (before := last.get((name, label), 0.0)):
                series.inc(value - before)
        last.update(values)

    def log(self) -> None:
        for index, values in self._last.items():
            before = self._logged.get(index, {})
            if values.get(("requests", ""), 0) > before.get(("requests", ""), 0):
                logger.info("Engine %03d: flashstate %s", index, log_line(values, before))
            self._logged[index] = dict(values)

    def log_engine_initialized(self) -> None:
        pass


def log_line(values: dict[tuple[str, str], float], before: dict[tuple[str, str], float]) -> str:
    """One interval in words: counts since `before`, levels as they are."""

    def since(name: str, label: str = "") -> float:
        return values.get((name, label), 0.0) - before.get((name, label), 0.0)

    def level(name: str) -> float:
        return values.get((name, ""), 0.0)

    prompt, ideal = max(since("prompt_tokens"), 1.0), since("ideal_tokens")
    missed = ", ".join(f"{reason} {since('missed_tokens', reason):.0f}" for reason in MISS_REASONS)
    return (
        f"resumed {since('resumed_tokens') / prompt:.1%} of {prompt:.0f} prompt tokens (ideal {ideal / prompt:.1%}), "
        f"missed tokens: {missed}; {level('resident_states'):.0f} states in {level('resident_blocks'):.0f} blocks"
    )
