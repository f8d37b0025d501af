"""AIPerf's per-request records, profile_export.jsonl.

The form is documented in AIPerf's "Working with profile export files": `metadata` has times in ns since the epoch and
names the session, `metrics` has values with their units, `error` says what failed: null or missing where nothing did.
Checked with AIPerf 0.13.0.
"""

from __future__ import annotations

from typing import Final

from flashstate.report.runs.lines import LineError, Row, number, part, text, whole
from flashstate.report.runs.request import MAIN, Request

SOURCE: Final = "AIPerf"

_SECONDS: Final = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_PROMPT: Final = ("usage_prompt_tokens", "input_sequence_length", "error_isl")
"""The server's count first: cached tokens are counted by the server, too."""
_OUTPUT: Final = ("usage_completion_tokens", "output_sequence_length", "output_token_count")
_CACHED: Final = "usage_prompt_cache_read_tokens"
_WARMUP: Final = "warmup"
_SCHEDULED: Final = "fixed-schedule-"
"""What comes before a session's name if the trace says when it starts."""
_LAST_NS: Final = 1e19
"""Far beyond today, in nanoseconds since the epoch."""


def is_record(row: Row) -> bool:
    """Whether it looks like one of AIPerf's."""
    return isinstance(row.get("metadata"), dict) and "request_start_ns" in row["metadata"]


def record(row: Row) -> Request:
    """One line's request, in seconds since the epoch. Raises LineError."""
    about = part(row, "metadata")
    metrics = {} if row.get("metrics") is None else part(row, "metrics")
    start_s = number(about, "request_start_ns", _LAST_NS) * 1e-9
    ttft_s = _seconds(metrics, "time_to_first_token")
    latency_s = _seconds(metrics, "request_latency")
    end_s = number(about, "request_end_ns", _LAST_NS) * 1e-9 if latency_s is None else start_s + latency_s
    return Request(
        session=text(about, "x_correlation_id").removeprefix(_SCHEDULED) or None,
        agent=MAIN,
        turn=whole(about, "turn_index") if about.get("turn_index") is not None else 0,
        start_s=start_s,
        first_s=None if ttft_s is None else start_s + ttft_s,
        end_s=max(end_s, start_s),
        prompt_tokens=_first(metrics, _PROMPT) or 0,
        output_tokens=_first(metrics, _OUTPUT) or 0,
        cached_tokens=_first(metrics, (_CACHED,)),
        error=_error(row, about),
        measured=about.get("benchmark_phase") != _WARMUP,
    )


def _error(row: Row, about: Row) -> str | None:
    if row.get("error") is None:
        return "cancelled" if about.get("was_cancelled") else None
    error = part(row, "error")
    kind = text(error, "type") or text(error, "code") or "failed"
    return f"{kind}: {text(error, 'message')}"


def _first(metrics: Row, names: tuple[str, ...]) -> int | None:
    for name in names:
        if metrics.get(name) is not None:
            return whole(part(metrics, name), "value")
    return None


def _seconds(metrics: Row, name: str) -> float | None:
    if metrics.get(name) is None:
        return None
    metric = part(metrics, name)
    unit = text(metric, "unit")
    if unit not in _SECONDS:
        raise LineError(f"{name}.unit is {unit!a}: must be one of {', '.join(_SECONDS)}")
    return number(metric, "value") * _SECONDS[unit]
