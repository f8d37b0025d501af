"""One reading of a server's /metrics page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

PROMPT: Final = "vllm:prompt_tokens_total"
CACHED: Final = "vllm:prompt_tokens_cached_total"
OUTPUT: Final = "vllm:generation_tokens_total"
RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"
KV_USE: Final = "vllm:kv_cache_usage_perc"
TTFT_SUM: Final = "vllm:time_to_first_token_seconds_sum"
TTFT_COUNT: Final = "vllm:time_to_first_token_seconds_count"
MISSED: Final = "flashstate:missed_tokens_total"
STATES: Final = "flashstate:resident_states"
_READ: Final = (PROMPT, CACHED, OUTPUT, RUNNING, WAITING, KV_USE, TTFT_SUM, TTFT_COUNT, STATES)


class MetricsError(ValueError):
    """A page that has not what it takes. One line."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Counts since the server started and levels at `at_s`, of all its engines together. Tokens; seconds.

    `kv_use` is the share of KV blocks in use, the mean over engines, 0 to 1. `missed_tokens` by reason and `states`
    are None where the server does not count them: it runs without FlashState.
    """

    at_s: float
    prompt_tokens: float
    cached_tokens: float
    output_tokens: float
    first_tokens: float
    ttft_sum_s: float
    running: int
    waiting: int
    kv_use: float
    missed_tokens: Mapping[str, float] | None
    states: int | None

    def follows(self, before: Sample) -> bool:
        """Whether counts went on from there: a server that was started anew counts from 0."""
        pairs = (
            (before.prompt_tokens, self.prompt_tokens),
            (before.output_tokens, self.output_tokens),
            (before.first_tokens, self.first_tokens),
        )
        return all(earlier <= later for earlier, later in pairs)


def read_sample(page: str, at_s: float) -> Sample:
    """Reads a page of vLLM's, 0.32 or later. Raises MetricsError."""
    sums: dict[str, float] = defaultdict(float)
    series: dict[str, int] = defaultdict(int)
    missed: dict[str, float] = defaultdict(float)
    try:
        for family in text_string_to_metric_families(page):
            for found in family.samples:
                sums[found.name] += found.value
                series[found.name] += 1
                if found.name == MISSED:
                    missed[found.labels.get("reason", "")] += found.value
    except ValueError as error:
        raise MetricsError(f"/metrics is no Prometheus page: {error}") from None
    strange = next((name for name in _READ if not isfinite(sums.get(name, 0.0))), None)
    if strange is not None:
        raise MetricsError(f"/metrics: {strange} is {sums[strange]}: must be a finite number")
    if PROMPT not in sums:
        raise MetricsError(f"/metrics has no {PROMPT}: not a vLLM server")
    return Sample(
        at_s=at_s,
        prompt_tokens=sums[PROMPT],
        cached_tokens=sums[CACHED],
        output_tokens=sums[OUTPUT],
        first_tokens=sums[TTFT_COUNT],
        ttft_sum_s=sums[TTFT_SUM],
        running=round(sums[RUNNING]),
        waiting=round(sums[WAITING]),
        kv_use=sums[KV_USE] / (series[KV_USE] or 1),
        missed_tokens=dict(missed) if missed else None,
        states=round(sums[STATES]) if series[STATES] else None,
    )
