"""Whether the simulator decides as the engine did: an engine's event log, replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

from flashstate.core.counters import Counters
from flashstate.files import check_regular
from flashstate.simulate.log_replay import Disagreement, Event, Evicted, LogReplay, Start

VERSION: Final = 1
"""Of the log's format (see docs/agreement.md)."""


class LogError(ValueError):
    """A log that cannot be replayed: which line, and why."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """What engine and simulator did with the same requests."""

    starts: tuple[Start, ...]
    """Every request that ran, in order; one that was preempted starts again."""
    engine_evicted: tuple[Evicted, ...]
    simulator_evicted: tuple[Evicted, ...]
    counters: tuple[Counters, ...]
    """The simulator's, one for each engine that wrote to the log."""
    first: Disagreement | None
    """The first disagreement of any kind; later ones may follow from it."""

    @property
    def equal(self) -> int:
        """Requests that resumed at the same position."""
        return sum(start.engine == start.simulator for start in self.starts)

    def verdict(self) -> str:
        """One line, or two where they disagree."""
        given = sum(start.is_given for start in self.starts)
        parts = [f"{len(self.starts):,} requests, {self.equal:,} equal"]
        if given:
            parts.append(f"{given:,} of them where vLLM's own cache led further")
        parts.append(f"{len(self.engine_evicted):,} states evicted")
        line = "; ".join(parts)
        return line if self.first is None else f"{line}\nfirst disagreement, {self.first}"


def check_log(path: Path) -> Agreement:
    """Replay the log at `path`. Raises LogError, or OSError if it cannot be read."""
    check_regular(path)
    replays: list[LogReplay] = []
    for number, event in _events(path):
        try:
            _play(replays, number, event)
        except KeyError as error:
            raise LogError(f"{path}, line {number}: lacks, or knows nothing of, {error}") from None
        except (TypeError, ValueError, IndexError, AttributeError, AssertionError) as error:
            raise LogError(f"{path}, line {number}: cannot be replayed ({error})") from None
    if not replays:
        raise LogError(f"{path}: empty; record with flashstate serve --event-log {path}")
    return _together(replays)


def _play(replays: list[LogReplay], number: int, event: Event) -> None:
    if event["event"] == "setup":
        if event["version"] != VERSION:
            raise ValueError(f"format {event['version']!r}, where this version reads {VERSION}")
        replays.append(LogReplay(event))
    elif replays:
        replays[-1].play(number, event)
    else:
        raise ValueError(f"no setup before {event['event']!r}: is it an event log?")


def _together(replays: list[LogReplay]) -> Agreement:
    return Agreement(
        tuple(start for replay in replays for start in replay.starts),
        tuple(evicted for replay in replays for evicted in replay.engine_evicted),
        tuple(evicted for replay in replays for evicted in replay.simulator_evicted),
        tuple(replay.cache.counters for replay in replays),
        next((replay.first for replay in replays if replay.first is not None), None),
    )


def _events(path: Path) -> Iterator[tuple[int, Event]]:
    """Numbered events. The line at which an engine was killed, its last, is left out if it is torn."""
    with path.open("rb") as file:
        for (number, line), (_, after) in pairwise(chain(enumerate(file, 1), [(0, b"")])):
            try:
                event = json.loads(line)
            except ValueError:
                if after and b'"event":"setup"' not in after:
                    raise LogError(f"{path}, line {number}: not JSON; is it an event log?") from None
                continue
            if not isinstance(event, dict) or "event" not in event:
                raise LogError(f"{path}, line {number}: not an event; is it an event log?")
            yield number, event
