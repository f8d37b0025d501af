"""What one request got."""

from __future__ import annotations

from dataclasses import dataclass

from flashstate.replay.plan import Kind


@dataclass(frozen=True)
class Record:
    """One request as the client saw it. Times in seconds, `start_s` and `end_s` since the start of the run.

    `cached_tokens` is what the server says it did not compute; `ideal_tokens` is the longest prefix of the
    prompt that any request finished before this one was sent had computed. `error` is None, or "kind:
    detail"; then the token counts of the answer are of what arrived.
    """

    session: str
    turn: int
    kind: Kind
    prompt_tokens: int
    cached_tokens: int
    ideal_tokens: int
    output_tokens: int
    ttft_s: float | None
    e2e_s: float
    start_s: float
    end_s: float
    error: str | None = None

    @property
    def recomputed_tokens(self) -> int:
        """Prompt tokens that were computed although an earlier request had computed them."""
        return max(0, self.ideal_tokens - self.cached_tokens)

    @property
    def error_kind(self) -> str | None:
        """The error without its detail."""
        return error_kind(self.error) if self.error is not None else None


def error_kind(error: str) -> str:
    """An error without its detail."""
    return error.split(":", 1)[0]
