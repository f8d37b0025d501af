"""A fit as JSON: all that was measured, and where. `flashstate.cost_file` reads the coefficients back."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import flashstate
from flashstate.cost_file import KIND, VERSION
from flashstate.fit.judge import MOST_ERROR, Fit
from flashstate.fit.measure import Prefill
from flashstate.fit.server import ServerInfo
from flashstate.urls import without_passwords


def as_json(found: Fit, prefills: Sequence[Prefill], server: ServerInfo) -> dict[str, Any]:
    """Plain values. Every measured prefill is in it, so that another fit can be made of them."""
    return {
        "kind": KIND,
        "version": VERSION,
        "date": datetime.now().astimezone().isoformat("T", "seconds"),
        "flashstate": flashstate.__version__,
        "client_machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "server": {"url": without_passwords(server.url), "version": server.version},
        "model": server.model,
        "formula": "seconds = d (b - a) + e (b^2 - a^2) / 1e6 + request_s + b prompt_token_s (+ resume_s if a > 0)",
        "coefficients": asdict(found.time),
        "intervals_95": {name: list(ends) for name, ends in found.intervals.items()},
        "median_relative_error": {
            "held_out": found.median_error(held_out=True),
            "fitted": found.median_error(held_out=False),
            "limit": MOST_ERROR,
        },
        "comparisons": [asdict(c) | {"relative_error": c.relative_error} for c in found.comparisons],
        "prefills": [asdict(prefill) for prefill in prefills],
    }
