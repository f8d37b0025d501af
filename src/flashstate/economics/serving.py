"""What a server did: the rates that money is counted from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_TOKENS: Final = 1e15
"""A minute. Far above any engine, and products with prices stay finite."""
MOST_GPUS: Final = 1_000_000


class RateError(ValueError):
    """Rates that cannot be used. One line: the value, the limit, the way out."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens a minute of one whole engine, all its `gpus` together.

    Prompt tokens are those of requests served, cached and computed alike: all are paid for. Raises RateError.
    """

    prompt_tokens_per_minute: float
    output_tokens_per_minute: float
    gpus: int = 1

    def __post_init__(self) -> None:
        for name in ("prompt_tokens_per_minute", "output_tokens_per_minute"):
            value = getattr(self, name)
            if not 0 <= value <= MOST_TOKENS:  # nor is NaN
                raise RateError(f"{_words(name)} {value:g}: must be from 0 to {MOST_TOKENS:g}")
        if not 1 <= self.gpus <= MOST_GPUS:
            raise RateError(f"gpus {self.gpus}: must be from 1 to {MOST_GPUS:,}, the GPUs of one engine")


@dataclass(frozen=True, slots=True)
class Serving:
    """One server under one load. `hit_rate`: resumed over prompt tokens, 0 to 1. Raises RateError.

    `sessions`: concurrent ones, None where not known. `rates`: None where only cache contents were measured.
    """

    name: str
    hit_rate: float
    rates: Rates | None
    sessions: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.hit_rate <= 1:
            raise RateError(f"hit rate {self.hit_rate:g}: must be a share from 0 to 1, such as 0.87 for 87%")

    @property
    def title(self) -> str:
        """Its name, and its load if that is known."""
        return self.name if self.sessions is None else f"{self.name}, {self.sessions} sessions"


def _words(name: str) -> str:
    return name.replace("_", " ")
