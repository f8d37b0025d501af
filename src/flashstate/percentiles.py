"""The two percentiles that runs are compared by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def p50_p90(values: Sequence[float]) -> tuple[float, float] | None:
    """The 50th and the 90th, linear between ranks; None of nothing."""
    if not values:
        return None
    p50, p90 = np.percentile(np.asarray(values), (50, 90))
    return float(p50), float(p90)
