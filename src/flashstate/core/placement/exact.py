"""To the token: where prompts part, what the client named, and where these clients' edits begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flashstate.core.cost import PrefillCostModel
from flashstate.core.placement.base import Prompt, Spot
from flashstate.core.placement.learnt import Learnt
from flashstate.core.state import JUNCTION, NAMED, PROMPT_END

LEAST_TOKENS = 64
"""A junction so close above the state resumed from saves less than one tile of a kernel."""
PRIOR_WEIGHT = 8.0
PRIOR_TURNS_BACK = 0.1


class Exact(Learnt):
    """Every position from which a request is known or likely to go on; `best` picks one for each chunk.

    A junction is where the KV held for the prompt ends beyond any state on it, or where a prompt that waits or runs
    now parts from it. Kernels export at any token, so none of these is rounded to a block. The prompt's end is one
    token before it, where an identical prompt and a re-rendered answer resume, until clients are seen to turn back
    further.
    """

    name = "exact"
    first = 0
    # Identical prompts are what a client tries first: a turn back or two by others must not take that away.
    prior_weight = 64.0

    def __init__(self) -> None:
        super().__init__()
        self._requests = PRIOR_WEIGHT
        self._turns_back = PRIOR_WEIGHT * PRIOR_TURNS_BACK

    def candidates(self, prompt: Prompt) -> Iterator[Spot]:
        for position in prompt.named:
            yield Spot(position, NAMED)
        for position in (prompt.resident, *prompt.shared):
            # At or beyond the prompt's last token the prompt's end serves it.
            if prompt.resumed + LEAST_TOKENS <= position < prompt.tokens - 1:
                yield Spot(position, JUNCTION)
        yield from super().candidates(prompt)

    def learn(self, turned_back: int | None, uncached_tokens: int) -> None:
        super().learn(turned_back, uncached_tokens)
        self._requests += 1
        self._turns_back += turned_back is not None

    def chance(self, kind: str) -> float:
        """How likely a later request resumes there. Whoever names a position or shares a prefix will."""
        return self._turns_back / self._requests if kind == PROMPT_END else 1.0

    def one_a_chunk(self, prompt: Prompt, chunk_tokens: int, cost: PrefillCostModel) -> tuple[Spot, ...]:
        """The best spot of each chunk, for a host that computes a whole prompt in chunks of so many tokens."""
        spots, below = self.spots(prompt), prompt.resumed
        chosen: list[Spot] = []
        for start in range(prompt.resumed, prompt.tokens, chunk_tokens):
            spot = self.best(spots, start, min(start + chunk_tokens, prompt.tokens), below, cost)
            if spot is not None:
                chosen.append(spot)
                below = spot.position
        return tuple(chosen)

    def best(
        self, spots: Sequence[Spot], start: int, stop: int, resumed: int, cost: PrefillCostModel
    ) -> Spot | None:
        """The one of `spots` in (start, stop] that is expected to save most prefill; None if there is none.

        All checkpoints have one size, so seconds alone compare. What a state saves is the way from the one below:
        `resumed`, or the last one taken.
        """
        inside = [spot for spot in spots if start < spot.position <= stop]
        return max(
            inside,
            key=lambda spot: self.chance(spot.kind) * cost.seconds(resumed, spot.position),
            default=None,
        )
