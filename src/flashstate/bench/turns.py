"""In which order the runs are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flashstate.bench.engine import Engine
from flashstate.bench.options import Options


@dataclass(frozen=True)
class Turn:
    """One start of an engine, and the loads that are put on it one after another."""

    engine: Engine
    repeat: int
    loads: tuple[int, ...]


def turns(options: Options) -> Iterator[Turn]:
    """A B C, C B A, A B C, ...: what drifts on the machine meets all engines alike. Loads turn round, too."""
    for repeat in range(options.repeat):
        forward = repeat % 2 == 0
        for engine in options.engines if forward else reversed(options.engines):
            yield Turn(engine, repeat, options.loads if forward else options.loads[::-1])
