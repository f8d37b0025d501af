"""Assigns every token recomputed before the ideal position to one cause."""

from __future__ import annotations

from bisect import bisect_right

from flashstate.core.cost import PrefillCostModel
from flashstate.core.counters import CAPACITY, DEPENDENCY, PLACEMENT, Attribution
from flashstate.core.history import Precedent


def attribute(
    prompt_tokens: int, resumed: int, precedent: Precedent, resident: int, cost: PrefillCostModel
) -> Attribution:
    """Split the tokens between `resumed` and r* by cause (FlashState, section 2, equation 5).

    `resident` is the longest prefix whose KV is still held, in tokens. A resume beyond what is remembered (the
    memory is bounded) counts as ideal.
    """
    ideal = max(precedent.computed, resumed)
    checkpoint = _deepest(precedent.checkpoints, ideal, resumed)
    intact_kv = _deepest(precedent.checkpoints, min(checkpoint, resident), resumed)
    spans = {
        PLACEMENT: (checkpoint, ideal),
        CAPACITY: (intact_kv, checkpoint),
        DEPENDENCY: (resumed, intact_kv),
    }
    return Attribution(
        prompt_tokens,
        resumed,
        ideal,
        {reason: stop - start for reason, (start, stop) in spans.items()},
        {reason: cost.seconds(start, stop) for reason, (start, stop) in spans.items()},
    )


def _deepest(positions: tuple[int, ...], limit: int, floor: int) -> int:
    """The last of the ascending `positions` not beyond `limit`, but at least `floor`."""
    count = bisect_right(positions, limit)
    return max(positions[count - 1], floor) if count else floor
