"""One request as a client saw it, and the run it was part of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

MAIN: Final = "main"
"""The agent that a session starts with."""


@dataclass(frozen=True, slots=True)
class Request:
    """Times in seconds since the run began; token counts are the server's where it reports them.

    `first_s` is None where no token came; `cached_tokens` where the server does not say; `ideal_tokens` (the longest
    prefix that any earlier request had computed) where the client did not keep count; `missed_tokens` (by reason)
    where nobody knows; `session` where requests are not tied together. `kind` says how the prompt follows from the
    turn before: "" if not known. `error` is None, or "kind: detail". `measured`: it ended in the measured time.
    """

    session: str | None
    agent: str
    turn: int
    start_s: float
    first_s: float | None
    end_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    ideal_tokens: int | None = None
    missed_tokens: Mapping[str, int] | None = None
    kind: str = ""
    error: str | None = None
    measured: bool = True

    @property
    def recomputed_tokens(self) -> int | None:
        """Prompt tokens that were computed although an earlier request had computed them."""
        if self.ideal_tokens is None or self.cached_tokens is None:
            return None
        return max(0, self.ideal_tokens - self.cached_tokens)

    @property
    def error_kind(self) -> str | None:
        """The error without its detail."""
        return None if self.error is None else self.error.split(":", 1)[0]


@dataclass(frozen=True)
class Run:
    """The requests of one engine, in the order they were sent.

    `measured_s`: how long was measured, None for as long as the measured requests took; `opened_s`: when that began.
    `missed_tokens`: what the server counted meanwhile, by reason, and `sessions`: how many were asked for at a time,
    where the file has them. `stopped`: why it ended before its time. `left_out`: lines that were no records.
    """

    name: str
    source: str
    requests: Sequence[Request]
    opened_s: float = 0.0
    measured_s: float | None = None
    missed_tokens: Mapping[str, int] | None = None
    sessions: int | None = None
    stopped: str = ""
    left_out: int = 0

    @cached_property
    def measured(self) -> Sequence[Request]:
        """The requests that count, failed ones too."""
        return [request for request in self.requests if request.measured]

    @cached_property
    def answered(self) -> Sequence[Request]:
        """Those of them that did not fail."""
        return [request for request in self.measured if request.error is None]

    @property
    def seconds(self) -> float:
        """How long was measured."""
        if self.measured_s is not None:
            return self.measured_s
        begun = min((request.start_s for request in self.measured), default=0.0)
        return max((request.end_s for request in self.measured), default=0.0) - begun

    @cached_property
    def concurrent_sessions(self) -> int | None:
        """As asked for, or the most open at once, each from its first request to its last; None: not known."""
        if self.sessions is not None:
            return self.sessions
        spans: dict[str, tuple[float, float]] = {}
        for request in self.requests:
            if request.session is not None:
                start, end = spans.get(request.session, (request.start_s, request.end_s))
                spans[request.session] = (min(start, request.start_s), max(end, request.end_s))
        return _most_open(spans.values()) if spans else None

    def missed(self, reason: str) -> int | None:
        """Prompt tokens missed for a reason: as the server counted them, else added up over requests."""
        if self.missed_tokens is not None:
            return self.missed_tokens.get(reason, 0)
        known = [r.missed_tokens for r in self.answered if r.missed_tokens is not None]
        return sum(missed.get(reason, 0) for missed in known) if known else None


def _most_open(spans: Iterable[tuple[float, float]]) -> int:
    # One that ends as another starts does not overlap it: ends sort first.
    events = sorted(event for start, end in spans for event in ((start, 1), (end, -1)))
    most = now = 0
    for _, change in events:
        now += change
        most = max(most, now)
    return most
