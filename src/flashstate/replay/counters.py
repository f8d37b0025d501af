"""The counters of a server's /metrics page that a replay reads before and after what it measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

MISS_REASONS: Final = ("placement", "capacity", "dependency")
_MISSED_TOKENS: Final = "flashstate:missed_tokens_total"


def missed_tokens(page: str) -> Mapping[str, float] | None:
    """Missed prompt tokens so far by reason; None where the server does not count them.

    Raises ValueError if the page is not in the Prometheus text format.
    """
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == _MISSED_TOKENS:
                reason = sample.labels.get("reason", "")
                found[reason] = found.get(reason, 0.0) + sample.value
    return {reason: found.get(reason, 0.0) for reason in MISS_REASONS} if found else None


def grown(before: Mapping[str, float] | None, after: Mapping[str, float] | None) -> dict[str, int] | None:
    """What was counted between two readings; None unless both have counts."""
    if before is None or after is None:
        return None
    return {reason: round(after[reason] - before[reason]) for reason in MISS_REASONS}
