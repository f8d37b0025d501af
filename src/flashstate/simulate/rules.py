"""How sessions are played: the rules of the published replay, and the choices they leave open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from flashstate.simulate.conversation import Ask, Conversation

Gaps = Literal["recorded", "corrected"]
GAPS: Final[tuple[Gaps, ...]] = ("recorded", "corrected")


@dataclass(frozen=True, slots=True)
class Rules:
    """`sessions` at a time; each starts a trajectory somewhere between 25% and 75%, then plays whole ones.

    Times in seconds. `gaps`: as recorded, or less the request's own server time (many recordings hold a hidden
    second call of that length in every gap). What starts in [warmup_s, duration_s) is measured.
    """

    sessions: int
    seed: int = 0
    duration_s: float = 2700.0
    warmup_s: float = 900.0
    spread_s: float = 60.0
    """The first request of each session comes within this time, at random."""
    gap_cap_s: float = 300.0
    gaps: Gaps = "recorded"

    def __post_init__(self) -> None:
        if self.sessions < 1:
            raise ValueError(f"sessions {self.sessions}: must be 1 or more")
        if not 0 <= self.warmup_s < self.duration_s < float("inf"):
            raise ValueError(
                f"warm-up {self.warmup_s} s of {self.duration_s} s: must be 0 or more, and shorter than the run"
            )
        if not (self.spread_s >= 0 and self.gap_cap_s >= 0):
            raise ValueError(f"spread {self.spread_s} s, gap cap {self.gap_cap_s} s: must be 0 or more")
        if self.gaps not in GAPS:
            raise ValueError(f"gaps {self.gaps!r}: must be one of {', '.join(GAPS)}")

    def gap_s(self, ask: Ask) -> float:
        """The pause before `ask`, from the end of the one before."""
        gap = ask.gap_s if self.gaps == "recorded" else max(0.0, ask.gap_s - ask.api_s)
        return min(gap, self.gap_cap_s)

    def start_s(self, session: int) -> float:
        """When a session sends its first request."""
        return float(np.random.default_rng([self.seed, session, 1]).uniform(0.0, self.spread_s))

    def is_measured(self, start_s: float) -> bool:
        """Whether a request that starts then counts."""
        return self.warmup_s <= start_s < self.duration_s


@dataclass(frozen=True, slots=True)
class Play:
    """One trajectory played by one session: its agents' conversations (main first), from the main's turn `first`."""

    number: int
    agents: tuple[Conversation, ...]
    first: int


def plays(trajectories: Sequence[tuple[Conversation, ...]], rules: Rules, session: int) -> Iterator[Play]:
    """What a session plays, one after another, for ever. Depends on the seed only, never on how fast things go.

    Sessions go through one shuffled list side by side, so that no trajectory comes twice before all have come.
    """
    order = np.random.default_rng([rules.seed]).permutation(len(trajectories))
    where = np.random.default_rng([rules.seed, session]).uniform(0.25, 0.75)
    number = session
    while True:
        agents = trajectories[order[number % len(order)]]
        yield Play(number, agents, int(where * len(agents[0].asks)) if number == session else 0)
        number += rules.sessions
