"""Just before the prompt's end, at the distance from which these clients' edits begin."""

from collections.abc import Iterable

from flashstate.core.placement.base import Placement, Prompt, Spot
from flashstate.core.state import PROMPT_END

STEP = 64
STEPS = 16
"""Distances up to 1,024 tokens: further back is a deep edit, which no state here would serve."""
FIRST = 3
"""Before anything is seen: 192 tokens back."""
PRIOR_WEIGHT = 8.0
FORGET = 0.999


class Learnt(Placement):
    """The request's end, and a position before the prompt's that costs least.

    A state d tokens before the prompt's end makes every turn back to after it compute d tokens again at most; a turn
    back to before it computes all that the request before had to. The best d is learnt from the turns back seen.
    """

    name = "learnt"

    first = FIRST
    prior_weight = PRIOR_WEIGHT

    def __init__(self) -> None:
        self._turned_back = [0.0] * (STEPS + 1)
        self._turned_back[self.first] = self.prior_weight
        self._uncached = 1000.0

    @property
    def back_tokens(self) -> int:
        """How far before the prompt's end. Recomputed tokens are least there."""
        missed, served, best = sum(self._turned_back), 0.0, (float("inf"), 0)
        for steps, count in enumerate(self._turned_back):
            served, missed = served + count, missed - count
            best = min(best, (served * steps * STEP + missed * self._uncached, steps))
        return best[1] * STEP

    def candidates(self, prompt: Prompt) -> Iterable[Spot]:
        return (Spot(prompt.tokens - max(self.back_tokens, 1), PROMPT_END),)

    def learn(self, turned_back: int | None, uncached_tokens: int) -> None:
        self._uncached += 0.01 * (uncached_tokens - self._uncached)
        if turned_back is None:
            return
        # An identical prompt computes its last token again: one step back would be 64 tokens for nothing.
        steps = 0 if turned_back <= 1 else -(-turned_back // STEP)
        if steps <= STEPS:
            self._turned_back = [FORGET * count for count in self._turned_back]
            self._turned_back[steps] += 1
