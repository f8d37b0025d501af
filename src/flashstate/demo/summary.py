"""An engine's figures from the records of its requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from flashstate.percentiles import p50_p90
from flashstate.replay.counters import MISS_REASONS
from flashstate.replay.driver import Replay
from flashstate.replay.record import Record
from flashstate.report.engine import EngineResult, Percentiles


def summarise(run: Replay) -> EngineResult:
    """Sums up the requests answered in the measured time. Failed ones count in none of the figures."""
    answered = [record for record in run.measured if record.error is None]
    prompt_tokens = sum(record.prompt_tokens for record in answered)
    resumed_tokens = sum(record.cached_tokens for record in answered)
    minutes = max(run.closed_s - run.opened_s, 1e-9) / 60
    misses: Mapping[str, int] = run.misses_tokens or {}
    return EngineResult(
        hit_rate=round(resumed_tokens / prompt_tokens, 6) if prompt_tokens else None,
        prompt_tokens=prompt_tokens,
        resumed_tokens=resumed_tokens,
        ideal_tokens=sum(record.ideal_tokens for record in answered),
        recomputed_tokens=sum(record.recomputed_tokens for record in answered),
        ttft_s=_percentiles([record.ttft_s for record in answered if record.ttft_s is not None]),
        e2e_s=_percentiles([record.e2e_s for record in answered]),
        output_tokens_per_min=round(sum(record.output_tokens for record in answered) / minutes, 1),
        prompt_tokens_per_min=round(prompt_tokens / minutes, 1),
        misses_tokens={reason: misses.get(reason) for reason in MISS_REASONS},
    )


def errors_by_kind(records: Sequence[Record]) -> dict[str, int]:
    """How many requests failed, by kind of error."""
    return dict(Counter(record.error_kind for record in records if record.error_kind is not None))


def _percentiles(values: Sequence[float]) -> Percentiles:
    found = p50_p90(values)
    return Percentiles(None, None) if found is None else Percentiles(round(found[0], 4), round(found[1], 4))
