"""The lines that the report draws of one engine's run."""

from __future__ import annotations

from collections.abc import Sequence

from flashstate.replay.record import Record
from flashstate.report.html import Curves


def curves(records: Sequence[Record]) -> Curves:
    """Recomputed tokens piling up request by request, and the share of requests by time to first token."""
    answered = [record for record in records if record.error is None]
    piled, total = [(0.0, 0.0)], 0
    for number, record in enumerate(sorted(answered, key=lambda record: record.end_s), start=1):
        total += record.recomputed_tokens
        piled.append((float(number), float(total)))
    waits = sorted(record.ttft_s for record in answered if record.ttft_s is not None)
    shares = [(wait, (rank + 1) / len(waits)) for rank, wait in enumerate(waits)]
    return Curves(recomputed=tuple(piled), first_token=tuple(shares))
