"""Which form a file has, and the runs in it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

from flashstate.report.runs import aiperf, replay, vllm_bench
from flashstate.report.runs.lines import LineError, Row, rows
from flashstate.report.runs.request import Request, Run
from flashstate.report.simulation import ReportError

_LOOKED_AT: Final = 8
"""Lines at the head of a file in which a record must show; a head or a damaged line may come first."""


def labelled(arguments: Sequence[str]) -> list[tuple[str, Path]]:
    """Names and files of FILE or NAME=FILE. A file is called by its name, and by its folder's too if two are alike."""
    given = [_split(argument) for argument in arguments]
    stems = Counter(path.stem for name, path in given if name is None)
    return [
        (name or (path.stem if stems[path.stem] == 1 else f"{path.absolute().parent.name}/{path.stem}"), path)
        for name, path in given
    ]


def read_runs(path: Path, name: str) -> list[Run] | None:
    """The runs of a file of requests; None if it looks like something else. Raises ReportError."""
    try:
        lines = rows(path)
        head = [row for _, row in zip(range(_LOOKED_AT), lines, strict=False)]
        found = [row for row in head if row is not None]
        if not found:
            return _pretty(path, name)
        everything = chain(head, lines)
        if any(map(replay.is_record, found)):
            return [_replay(path, name, everything)]
        if any(map(aiperf.is_record, found)):
            return [_aiperf(path, name, everything)]
        if any(map(vllm_bench.is_result, found)):
            return _bench(path, name, everything)
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror or error}") from None
    return None


def _split(argument: str) -> tuple[str | None, Path]:
    name, equals, path = argument.partition("=")
    if Path(argument).exists() or not equals or not name or not path:
        return None, Path(argument)
    return " ".join(name.split()), Path(path)


def _pretty(path: Path, name: str) -> list[Run] | None:
    """A benchmark's result that somebody has indented."""
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict) and vllm_bench.is_result(document):
        return _bench(path, name, [document])
    return None


def _replay(path: Path, name: str, lines: Iterable[Row | None]) -> Run:
    log = replay.Log()
    requests, left_out = _records(
        path, (row for row in lines if not log.takes(row)), replay.is_record, log.record
    )
    return Run(
        name,
        replay.SOURCE,
        requests,
        opened_s=log.opened_s or 0.0,
        measured_s=log.measured_s,
        missed_tokens=log.missed_tokens,
        sessions=log.sessions,
        stopped=log.stopped,
        left_out=left_out,
    )


def _aiperf(path: Path, name: str, lines: Iterable[Row | None]) -> Run:
    requests, left_out = _records(path, lines, aiperf.is_record, aiperf.record)
    begun_s = requests[0].start_s
    opened_s = min((request.start_s for request in requests if request.measured), default=begun_s)
    return Run(name, aiperf.SOURCE, _since(requests, begun_s), opened_s=opened_s - begun_s, left_out=left_out)


def _bench(path: Path, name: str, lines: Iterable[Row | None]) -> list[Run]:
    runs, left_out = [], 0
    for row in lines:
        if row is None or not vllm_bench.is_result(row):
            left_out += 1
            continue
        try:
            requests = sorted(vllm_bench.requests(row), key=lambda request: request.start_s)
        except LineError as error:
            raise ReportError(f"{path}: {error}") from None
        if requests:
            runs.append(Run(name, vllm_bench.SOURCE, _since(requests, requests[0].start_s)))
    if not runs:
        raise ReportError(f"{path}: holds no requests")
    return [replace(runs[0], left_out=left_out), *runs[1:]]


def _records(
    path: Path,
    lines: Iterable[Row | None],
    is_record: Callable[[Row], bool],
    record: Callable[[Row], Request],
) -> tuple[list[Request], int]:
    """The requests by start, and how many lines were no records. Raises ReportError if all are."""
    requests, left_out, reason = [], 0, "no record"
    for row in lines:
        try:
            if row is None or not is_record(row):
                raise LineError("no record")
            requests.append(record(row))
        except LineError as error:
            left_out += 1
            reason = str(error)
    if not requests:
        raise ReportError(f"{path}: holds no request that can be used; the last line: {reason}")
    return sorted(requests, key=lambda request: request.start_s), left_out


def _since(requests: Sequence[Request], begun_s: float) -> list[Request]:
    return [
        replace(
            request,
            start_s=request.start_s - begun_s,
            first_s=None if request.first_s is None else request.first_s - begun_s,
            end_s=request.end_s - begun_s,
        )
        for request in requests
    ]
