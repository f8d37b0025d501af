"""What to do with a record that cannot be read."""

from __future__ import annotations

from collections.abc import Callable

from flashstate.traces.session import TraceError

OnBad = Callable[[TraceError], None]
"""Called with the reason; the reader then goes on with the next record."""


def or_raise(on_bad: OnBad | None, error: TraceError) -> None:
    """Reports `error`, or raises it where nobody listens."""
    if on_bad is None:
        raise error
    on_bad(error)
