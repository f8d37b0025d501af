"""Where the next request on a path leaves it, counted from the last prompt's end: learnt online."""

from __future__ import annotations

from typing import Final

from flashstate.core.thread import Thread

_BUCKETS: Final = 32
_ON, _IN_OUTPUT, _BEFORE = 0, 1, 2
_PRIOR_WEIGHT: Final = 16.0
_PRIOR_GOES_ON: Final = 0.9


class TurnBacks:
    """Shares of requests that go on from the very end, leave inside the output, or so far before the prompt's end.

    The last by powers of two, in tokens. A context edit removes what was said from some point on: agents drop or
    render anew their last output far more often than anything before, so the prompt's end is the point to count from.
    """

    def __init__(self) -> None:
        rest = _PRIOR_WEIGHT * (1 - _PRIOR_GOES_ON) / (_BUCKETS - 1)
        self._counts = [_PRIOR_WEIGHT * _PRIOR_GOES_ON] + [rest] * (_BUCKETS - 1)
        self._shares: list[float] = []
        self.publish()

    def add(self, thread: Thread, rollback_tokens: int) -> None:
        """A request came that left `thread` `rollback_tokens` before its end."""
        left = thread.end - rollback_tokens
        if rollback_tokens <= 0:
            bucket = _ON
        elif left > thread.prompt_tokens:
            bucket = _IN_OUTPUT
        else:
            bucket = _BEFORE + (thread.prompt_tokens - left).bit_length()
        self._counts[min(bucket, _BUCKETS - 1)] += 1

    def publish(self) -> None:
        """Let the shares follow the counts."""
        total, below = sum(self._counts), 0.0
        self._shares = []
        for count in self._counts:
            below += count
            self._shares.append(below / total)

    @property
    def goes_on(self) -> float:
        """Share that goes on from the end."""
        return self._shares[_ON]

    def served(self, before_prompt_end: int) -> float:
        """Share that a state so many tokens before the prompt's end could serve, were it the only one.

        Negative: inside the output.
        """
        if before_prompt_end < 0:
            return self._shares[_ON]
        if before_prompt_end == 0:
            return self._shares[_BEFORE]
        length = before_prompt_end.bit_length()
        if _BEFORE + length >= _BUCKETS:
            return 1.0
        low, before = 1 << (length - 1), self._shares[_BEFORE + length - 1]
        return before + (before_prompt_end - low + 1) / low * (self._shares[_BEFORE + length] - before)
