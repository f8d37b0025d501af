"""Which processor cores the server and the client get, so that neither takes the other's time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Cores:
    """`compute` is the one core that the model runs on; `server` holds it and all else of the server's."""

    compute: int
    server: frozenset[int]
    client: frozenset[int]


def divide(available: frozenset[int]) -> Cores:
    """The last core for the client, the rest for the server; they share where there is only one."""
    client = frozenset([max(available)])
    server = available - client or available
    return Cores(min(server), server, client)


def available_cores() -> frozenset[int]:
    """The cores that this process may use (`taskset` narrows them)."""
    return frozenset(os.sched_getaffinity(0))


@contextlib.contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """Keeps this process on some cores for a while."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
