"""Room for connections: each is an open file, and a shell allows 1,024 of them by default."""

from __future__ import annotations

import resource
from typing import Final

_SPARE: Final = 64


def allow_connections(count: int) -> None:
    """Raises this process's limit so that so many fit, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _SPARE if hard == resource.RLIM_INFINITY else min(count + _SPARE, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
