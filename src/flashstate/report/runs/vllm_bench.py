"""What `vllm bench serve --save-result --save-detailed` writes: one object a run, a list a figure.

The fields are those of vllm/benchmarks/serve.py, 0.32. Requests are not tied to sessions there, and cached tokens are
not recorded. Several runs stand line by line in one file with --append-result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from flashstate.report.runs.lines import LineError, Row, number, whole
from flashstate.report.runs.request import MAIN, Request

SOURCE: Final = "vllm bench serve"

_DETAILED: Final = ("start_times", "ttfts", "itls", "input_lens", "output_lens")


def is_result(row: Row) -> bool:
    """Whether it looks like the result of a run."""
    return "total_input_tokens" in row and "request_throughput" in row


def requests(row: Row) -> list[Request]:
    """A run's requests, in seconds of the client's clock. Raises LineError."""
    missing = [name for name in _DETAILED if not isinstance(row.get(name), list)]
    if missing:
        raise LineError(f"has no {missing[0]}: run `vllm bench serve` with --save-detailed")
    columns = [row[name] for name in _DETAILED]
    columns.append(_column(row, "latencies", len(columns[0])))
    columns.append(_column(row, "errors", len(columns[0])))
    if len({len(column) for column in columns}) != 1:
        raise LineError("has lists of different lengths: the file is damaged")
    return [_request(*values) for values in zip(*columns, strict=True)]


def _column(row: Row, name: str, length: int) -> Sequence[Any]:
    """Older versions have none of it."""
    values = row.get(name)
    return values if isinstance(values, list) else [None] * length


def _request(start: Any, ttft: Any, itl: Any, prompt: Any, output: Any, latency: Any, error: Any) -> Request:
    row: Row = {
        "start_times": start,
        "ttfts": ttft,
        "latencies": latency,
        "input_lens": prompt,
        "output_lens": output,
    }
    start_s, ttft_s = number(row, "start_times"), number(row, "ttfts")
    if not isinstance(itl, list) or not all(isinstance(wait, int | float) for wait in itl):
        raise LineError("itls: must be lists of numbers")
    latency_s = number(row, "latencies") if latency else ttft_s + sum(itl)
    output_tokens = whole(row, "output_lens")
    # A failed request has no token; its message may be empty.
    failed = None if output_tokens or ttft_s else "failed: no token came"
    return Request(
        session=None,
        agent=MAIN,
        turn=0,
        start_s=start_s,
        first_s=start_s + ttft_s if ttft_s else None,
        end_s=start_s + latency_s,
        prompt_tokens=whole(row, "input_lens"),
        output_tokens=output_tokens,
        error=f"failed: {' '.join(str(error).split())[-200:]}" if error else failed,
    )
