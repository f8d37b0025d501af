"""Small files of every form that the report reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def make_record(session: str = "s0", turn: int = 0, start_s: float = 0.0, **changed: Any) -> dict[str, Any]:
    """A turn of 1,000 prompt tokens: 600 resumed of 800 that could have been; a second to the first token, two more."""
    return {
        "session": session,
        "turn": turn,
        "kind": "extends",
        "prompt_tokens": 1000,
        "cached_tokens": 600,
        "ideal_tokens": 800,
        "output_tokens": 120,
        "ttft_s": 1.0,
        "e2e_s": 3.0,
        "start_s": start_s,
        "end_s": start_s + 3.0,
        "error": None,
    } | changed


def make_records(sessions: int = 2, turns: int = 10, **changed: Any) -> list[dict[str, Any]]:
    """Sessions side by side, a turn every six seconds."""
    return [
        make_record(f"s{n}", turn, 6.0 * turn + n, **changed)
        for turn in range(turns)
        for n in range(sessions)
    ]


def make_aiperf(turn: int = 0, start_ns: int = 1_759_813_207_000_000_000, **metrics: Any) -> dict[str, Any]:
    """A record of AIPerf's: 1,000 prompt tokens of which 700 were cached, TTFT 250 ms, latency 2 s."""
    return {
        "metadata": {
            "session_num": 4,
            "x_correlation_id": "32ee",
            "turn_index": turn,
            "request_start_ns": start_ns + turn * 10_000_000_000,
            "request_end_ns": start_ns + turn * 10_000_000_000 + 2_000_000_000,
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        },
        "metrics": {
            "input_sequence_length": {"value": 1000, "unit": "tokens"},
            "usage_prompt_cache_read_tokens": {"value": 700, "unit": "tokens"},
            "output_sequence_length": {"value": 50, "unit": "tokens"},
            "time_to_first_token": {"value": 250.0, "unit": "ms"},
            "request_latency": {"value": 2000.0, "unit": "ms"},
        }
        | metrics,
        "error": None,
    }


def make_bench(requests: int = 4, **changed: Any) -> dict[str, Any]:
    """A result of `vllm bench serve --save-detailed`: a request a second, half a second to the first of 11 tokens."""
    return {
        "backend": "vllm",
        "request_throughput": 1.0,
        "total_input_tokens": 100 * requests,
        "start_times": [5000.0 + n for n in range(requests)],
        "ttfts": [0.5] * requests,
        "itls": [[0.1] * 10] * requests,
        "input_lens": [100] * requests,
        "output_lens": [11] * requests,
        "errors": [""] * requests,
    } | changed


def write_lines(path: Path, rows: Sequence[Any], tail: str = "") -> Path:
    """A JSON object a line, then whatever a killed writer left."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + tail)
    return path
