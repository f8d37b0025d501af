"""The published demo's figures, to stand beside measured ones. None of them was measured by us."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flashstate.economics.show import dollars
from flashstate.report.engine import Percentiles
from flashstate.report.figures import NONE, count, percent, seconds
from flashstate.report.published import Comparison
from flashstate.report.runs.figures import RunFigures


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A system of the published demo. Rates in tokens a minute and GPU; None: not published."""

    name: str
    hit_rate: float
    ttft_s: Percentiles
    latency_p50_s: float | None
    prompt_tokens_per_min: float
    output_tokens_per_min: float
    profit_per_gpu_hour: float


PUBLISHED: Final = (
    PublishedRun("FlashState", 0.87, Percentiles(0.2, 2.1), 12.4, 4.74e6, 61_700 / 2, 5.30),
    PublishedRun("vLLM", 0.30, Percentiles(3.3, 24.5), 46.1, 1.54e6, 22_000 / 2, 2.27),
    PublishedRun("SGLang", 0.06, Percentiles(56.3, 69.3), None, 1.29e6, 15_400 / 2, 2.67),
)
"""After 30 minutes, 48 sessions, GLM-5.3-Flash on engines of two B200s, as an article of 2026-11-09 quotes the demo."""

_SOURCE: Final = (
    "Rows marked published are the demo's of the paper after 30 minutes: GLM-5.3-Flash, 48 sessions, engines of two "
    "B200s, its output rates halved to a GPU. None of them was measured here; another model, machine or trace moves "
    "every level, so compare ratios between rows of one kind."
)
_COLUMNS: Final = (
    "hit rate",
    "TTFT p50",
    "TTFT p90",
    "latency p50",
    "prompt/min, GPU",
    "output/min, GPU",
    "profit/GPU-hour",
)


def beside_published(named: Sequence[tuple[str, RunFigures]], gpus: int) -> Comparison:
    """Measured runs, then the published ones, marked so. `gpus`: of one measured engine."""
    rows = [
        _row(
            f"{name}, measured",
            f.hit_rate,
            f.ttft_s,
            f.latency_s.p50,
            f.prompt_tokens_per_min / gpus,
            f.output_tokens_per_min / gpus,
            f.profit_per_gpu_hour,
        )
        for name, f in named
    ]
    rows += [
        _row(
            f"{run.name}, published",
            run.hit_rate,
            run.ttft_s,
            run.latency_p50_s,
            run.prompt_tokens_per_min,
            run.output_tokens_per_min,
            run.profit_per_gpu_hour,
        )
        for run in PUBLISHED
    ]
    return Comparison("Beside the published demo", _SOURCE, _COLUMNS, tuple(rows))


def _row(
    name: str,
    hit_rate: float | None,
    ttft_s: Percentiles,
    latency_p50_s: float | None,
    prompt_rate: float,
    output_rate: float,
    profit: float | None,
) -> tuple[str, ...]:
    money = NONE if profit is None else dollars(profit)
    times = (seconds(ttft_s.p50), seconds(ttft_s.p90), seconds(latency_p50_s))
    return (name, percent(hit_rate), *times, count(prompt_rate), count(output_rate), money)
