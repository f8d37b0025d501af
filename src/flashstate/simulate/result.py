"""What a run measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from flashstate.core.counters import MISS_REASONS, Attribution

QUANTILES: Final = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class RunKey:
    """Which run of a sweep: enough to make it again with the same traces."""

    policy: str
    sessions: int
    seed: int
    clock: str
    geometry: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run's measured window. Tokens in tokens, times in seconds, `occupancy` and `working_set` over capacity.

    The tokens of a request add up: resumed + missed of every reason = ideal. What only the engine clock knows
    (throughput, TTFT, latency, waits) is in `served`, empty under the recorded clock.
    """

    key: RunKey
    requests: int
    prompt_tokens: int
    resumed_tokens: int
    ideal_tokens: int
    missed_tokens: dict[str, int]
    median_uncached_tokens: float
    occupancy: float
    resident_checkpoints: float
    working_set: float
    evictions: dict[str, int]
    wall_s: float
    """How long the simulation took."""
    served: dict[str, float] = field(default_factory=dict)

    @property
    def hit_rate(self) -> float:
        """Resumed over prompt tokens."""
        return self.resumed_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def ideal_rate(self) -> float:
        """What the hit rate would be with every request resumed at its ideal position."""
        return self.ideal_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def redundant_tokens(self) -> float:
        """Prompt tokens computed again though an earlier request had computed them, a request."""
        return (self.ideal_tokens - self.resumed_tokens) / self.requests if self.requests else 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "key"} | {
            "key": {name: getattr(self.key, name) for name in self.key.__slots__}
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RunResult:
        """Raises TypeError or KeyError where the values are not those of a result."""
        return cls(key=RunKey(**values["key"]), **{k: v for k, v in values.items() if k != "key"})


class Tally:
    """Adds up the requests of a run's measured window."""

    def __init__(self) -> None:
        self.attributions: list[Attribution] = []

    def add(self, attribution: Attribution) -> None:
        """Count one request. Its tokens must add up."""
        missed = sum(attribution.missed_tokens.values())
        assert attribution.resumed_tokens + missed == attribution.ideal_tokens, attribution
        self.attributions.append(attribution)

    def missed(self) -> dict[str, int]:
        """Missed tokens by reason."""
        return {reason: sum(a.missed_tokens[reason] for a in self.attributions) for reason in MISS_REASONS}

    @property
    def uncached(self) -> Sequence[int]:
        """Prompt tokens computed, by request."""
        return [a.prompt_tokens - a.resumed_tokens for a in self.attributions]
