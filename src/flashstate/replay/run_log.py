"""The record of a run: a JSON object a line, written and flushed as things happen.

The first line says what the run is. Then come events, each with a key `event` and the `part` of the run it
belongs to (0, and one more each time the run is resumed):

    started    `at`, a date
    opened     the measured time begins; `s`
    request    a request ended: `session`, `play`, `server`, `measured`, `says_cached` and the fields of Record
    play       all of a play's requests have ended: `session`, `play`
    closed     the part ended: `s`, `over` (whether all the work was done), `stopped` (why before its time, or null),
               `restarts`, `missed_tokens`, `client_late_s` (how late this program itself was in the window, 90th
               percentile)

Seconds (`s`, `start_s`, `end_s`) count from the part's start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from flashstate.files import check_regular, hold
from flashstate.replay.record import Record

KIND: Final = "flashstate replay"
FORMAT: Final = 1
_RECORD: Final = tuple(field.name for field in fields(Record))

Event = dict[str, Any]


class LogError(Exception):
    """A file that cannot be used. One line: the file, the reason, the way out."""


class RunLog:
    """Appends to a file and holds it against other writers. Use as a context."""

    def __init__(self, path: Path, head: Mapping[str, Any], descriptor: int) -> None:
        self.path, self.head, self._descriptor = path, head, descriptor

    @classmethod
    def create(cls, path: Path, head: Mapping[str, Any]) -> RunLog:
        """A new file. Raises LogError if there is one, OSError if it cannot be made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except FileExistsError:
            raise LogError(
                f"{path}: exists: name another file with --records, or go on with --resume {path}"
            ) from None
        log = cls(path, {"kind": KIND, "format": FORMAT, **head}, descriptor)
        try:
            _lock(path, descriptor)
            log.append(log.head)
        except OSError:
            path.unlink(missing_ok=True)  # or it would stand in the way of the next try
            os.close(descriptor)
            raise
        return log

    @classmethod
    def resume(cls, path: Path, parameters: Mapping[str, Any]) -> RunLog:
        """A file that is there, without the line it may have been cut off in.

        Raises LogError (not ours, in use, or of other parameters) or OSError.
        """
        check_regular(path)
        head = read_head(path)
        _compare(path, head["parameters"], json.loads(json.dumps(parameters)))
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        _lock(path, descriptor)
        os.ftruncate(descriptor, _complete_bytes(path))
        return cls(path, head, descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def append(self, event: Mapping[str, Any]) -> None:
        """Writes a line. Raises OSError; of the line there may then be a beginning, which readers drop."""
        rest = memoryview(json.dumps(event).encode() + b"\n")
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


def read_head(path: Path) -> dict[str, Any]:
    """The first line. Raises LogError, OSError."""
    for _, line in _lines(path):
        head = _parsed(path, 1, line)
        if head.get("kind") == KIND and isinstance(head.get("parameters"), dict):
            if head.get("format") == FORMAT:
                return head
            raise LogError(f"{path}: is of format {head.get('format')}; this version reads {FORMAT}")
        break
    raise LogError(f"{path}: holds no records of `flashstate replay`")


def read_events(path: Path) -> Iterator[Event]:
    """Every event, in the order in which things happened. Raises LogError, OSError."""
    for number, line in _lines(path):
        if number > 1:
            event = _parsed(path, number, line)
            if not isinstance(event.get("event"), str):
                raise LogError(f"{path}: line {number}: is not an event")
            yield event


def measured_records(path: Path) -> list[Record]:
    """The requests that ended in the measured time, failed ones too. Raises LogError, OSError."""
    return [
        Record(**{name: event[name] for name in _RECORD})
        for event in read_events(path)
        if event["event"] == "request" and event["measured"]
    ]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are whole: the last one may not be."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield number, line


def _complete_bytes(path: Path) -> int:
    return sum(len(line) for _, line in _lines(path))


def _parsed(path: Path, number: int, line: bytes) -> Event:
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise LogError(f"{path}: line {number}: is not a JSON object")
    return event


def _lock(path: Path, descriptor: int) -> None:
    if not hold(descriptor):
        os.close(descriptor)
        raise LogError(f"{path}: another run is writing to it")


def _compare(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    differing = [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]
    if differing:
        said = "; ".join(f"{key} {theirs.get(key)!r} there, {ours.get(key)!r} here" for key in differing[:3])
        more = f"; {len(differing) - 3} more" if len(differing) > 3 else ""
        raise LogError(f"{path}: was made with other parameters: {said}{more}")
