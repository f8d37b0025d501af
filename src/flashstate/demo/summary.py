"""An engine's figures from its requests in the measured time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flashstate.percentiles import p50_p90
from flashstate.replay.counters import MISS_REASONS
from flashstate.replay.record import Record
from flashstate.report.engine import EngineResult, Percentiles


def summarise(
    records: Sequence[Record], seconds: float, missed_tokens: Mapping[str, int] | None
) -> EngineResult:
    """Sums up the measured requests of so many seconds. Failed ones count in none of the figures.

    `missed_tokens`: by reason, as the server counted them; None where it does not.
    """
    answered = [record for record in records if record.error is None]
    prompt_tokens = sum(record.prompt_tokens for record in answered)
    resumed_tokens = sum(record.cached_tokens for record in answered)
    minutes = max(seconds, 1e-9) / 60
    misses = missed_tokens or {}
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


def _percentiles(values: Sequence[float]) -> Percentiles:
    found = p50_p90(values)
    return Percentiles(None, None) if found is None else Percentiles(round(found[0], 4), round(found[1], 4))
