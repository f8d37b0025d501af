"""What the core has counted since the start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

PLACEMENT, CAPACITY, DEPENDENCY = "placement", "capacity", "dependency"
MISS_REASONS = (PLACEMENT, CAPACITY, DEPENDENCY)


@dataclass(frozen=True, slots=True)
class Attribution:
    """Where one request resumed, where it could ideally have, and why it fell short (FlashState, equation 5).

    resumed + the missed tokens of every reason = ideal. Tokens by position, seconds by the cost model.
    """

    prompt_tokens: int
    resumed_tokens: int
    ideal_tokens: int
    missed_tokens: dict[str, int]
    missed_seconds: dict[str, float]


@dataclass(slots=True)
class Counters:
    """Monotone counts; tokens in tokens, seconds by the cost model."""

    requests: int = 0
    prompt_tokens: int = 0
    resumed_tokens: int = 0
    ideal_tokens: int = 0
    missed_tokens: Counter[str] = field(default_factory=Counter)
    missed_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(MISS_REASONS, 0.0))
    captures: Counter[str] = field(default_factory=Counter)
    captures_skipped: Counter[str] = field(default_factory=Counter)
    admissions_refused: int = 0
    evictions: Counter[str] = field(default_factory=Counter)

    def add(self, attribution: Attribution) -> None:
        """Count one request."""
        self.requests += 1
        self.prompt_tokens += attribution.prompt_tokens
        self.resumed_tokens += attribution.resumed_tokens
        self.ideal_tokens += attribution.ideal_tokens
        self.missed_tokens.update(attribution.missed_tokens)
        for reason, seconds in attribution.missed_seconds.items():
            self.missed_seconds[reason] += seconds

    def snapshot(self) -> dict[str, Any]:
        """Plain values, for metrics and logs."""
        return {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "resumed_tokens": self.resumed_tokens,
            "ideal_tokens": self.ideal_tokens,
            "missed_tokens": {reason: self.missed_tokens[reason] for reason in MISS_REASONS},
            "missed_seconds": dict(self.missed_seconds),
            "captures": dict(self.captures),
            "captures_skipped": dict(self.captures_skipped),
            "admissions_refused": self.admissions_refused,
            "evictions": dict(self.evictions),
        }
