"""A conversation as a cache sees it: requests that follow one another on a growing path."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashstate.core.state import RecoveryUnit


@dataclass(slots=True, eq=False)
class Thread:
    """Where it stands. Seconds on the cache's clock, tokens from the prefix's start."""

    since_s: float
    """When its last request ended or, while one runs, when that started."""
    prompt_tokens: int = 0
    """The last request's prompt."""
    end: int = 0
    """Where its last request ended."""
    running: set[Hashable] = field(default_factory=set)
    """Requests on it that run now."""
    hint: Hashable = None
    """What the host says of the last response: how it stopped."""
    is_left: bool = False
    """Whether the conversation went on along another path, from a point before this one's end."""
    units: set[RecoveryUnit] = field(default_factory=set)
    """The cached states that it went through last."""

    def started(self, request: Hashable, prompt_tokens: int, now: float) -> Thread:
        """`request` goes on from the end: what it runs to will be this thread's. Mutates."""
        self.running.add(request)
        self.since_s, self.prompt_tokens = now, prompt_tokens
        return self

    def branched(self, request: Hashable, prompt_tokens: int, now: float) -> Thread:
        """`request` goes on from before the end: the new thread that it is. Mutates: this one is left, if idle."""
        if not self.running:
            self.is_left = True
            self.since_s = now
        return Thread(now, end=self.end).started(request, prompt_tokens, now)

    def ended(self, request: Hashable, end: int, hint: Hashable, now: float) -> None:
        """`request` ended after `end` tokens. Mutates."""
        self.running.discard(request)
        self.end, self.hint, self.since_s = end, hint, now

    def stopped(self, request: Hashable, now: float) -> bool:
        """`request` is gone without having ended, if it ran at all: returns whether it did. Mutates."""
        if request not in self.running:
            return False
        self.running.discard(request)
        self.since_s = now
        return True
