"""The figures of one engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Percentiles:
    """Seconds; None where nothing was measured."""

    p50: float | None
    p90: float | None


@dataclass(frozen=True)
class EngineResult:
    """What one engine did in the measured time. The fields are those of results.json, in its order.

    `resumed_tokens` of `prompt_tokens` were not computed; a perfect cache would have resumed
    `ideal_tokens`; `recomputed_tokens` is what each request fell short of that. `misses_tokens`: prompt
    tokens missed by reason (placement, capacity, dependency), as the server counts them; None each where it
    does not.
    """

    hit_rate: float | None
    prompt_tokens: int
    resumed_tokens: int
    ideal_tokens: int
    recomputed_tokens: int
    ttft_s: Percentiles
    e2e_s: Percentiles
    output_tokens_per_min: float
    prompt_tokens_per_min: float
    misses_tokens: Mapping[str, int | None]

    @property
    def computed_over_ideal(self) -> float | None:
        """Prompt tokens computed, as a multiple of what a perfect cache would have left to compute."""
        least = self.prompt_tokens - self.ideal_tokens
        return (self.prompt_tokens - self.resumed_tokens) / least if least > 0 else None

    def to_json(self) -> dict[str, object]:
        """As results.json has it."""
        return asdict(self)
