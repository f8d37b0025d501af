"""Reads recorded sessions, in whichever format they are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from flashstate.traces.fields import parse
from flashstate.traces.files import read_lines
from flashstate.traces.mooncake import read_mooncake
from flashstate.traces.parquet import read_parquet
from flashstate.traces.session import Session, TraceError
from flashstate.traces.skip import OnBad, or_raise
from flashstate.traces.weka import read_weka, read_weka_lines

_PATTERNS: Final = ("*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz")
_PROBED_LINES: Final = 20
"""The first lines may be broken: then the format shows in a later one."""
_MOONCAKE: Final = {"input_length", "text_input", "messages", "payload"}


def read_sessions(path: Path, on_bad: OnBad | None = None) -> Iterator[Session]:
    """Reads one session after another from a Parquet folder, a file, or a folder of files, sorted by name.

    Raises TraceError, in one line. With `on_bad` it calls that instead and goes on: after a broken record with the
    next one, after a file that cannot be read with the next file.
    """
    try:
        if (path / "requests.parquet").is_file():
            yield from read_parquet(path, on_bad)
        elif path.is_dir():
            yield from _read_folder(path, on_bad)
        else:
            yield from _read_file(path, on_bad)
    except TraceError as error:
        or_raise(on_bad, error)


def _read_folder(folder: Path, on_bad: OnBad | None) -> Iterator[Session]:
    files = sorted({file for pattern in _PATTERNS for file in folder.glob(pattern) if file.is_file()})
    if not files:
        wanted = f"neither requests.parquet nor {', '.join(_PATTERNS)}"
        raise TraceError(str(folder), "", f"holds no traces: {wanted}")
    for file in files:
        try:
            yield from _read_file(file, on_bad)
        except TraceError as error:
            or_raise(on_bad, error)


def _read_file(file: Path, on_bad: OnBad | None) -> Iterator[Session]:
    if file.suffix == ".parquet":
        raise TraceError(str(file), "", "is one of three tables: name their folder")
    kind = _kind(file)
    if kind == "mooncake":
        yield from read_mooncake(file, on_bad)
    elif kind == "weka lines":
        yield from read_weka_lines(file, on_bad)
    else:
        yield read_weka(file)


def _kind(file: Path) -> Literal["mooncake", "weka lines", "weka document"]:
    """A document over many lines has no line that is a record; a single line is a document, but in .jsonl."""
    lines = read_lines(file)
    has_lines = file.name.removesuffix(".gz").endswith(".jsonl")
    for place, (_, line) in enumerate(islice(lines, _PROBED_LINES)):
        try:
            record = parse(line, "")
        except TraceError:
            continue
        if isinstance(record, dict) and _MOONCAKE & record.keys():
            return "mooncake"
        if isinstance(record, dict) and "requests" in record:
            has_lines = has_lines or place > 0 or next(lines, None) is not None
            break
    return "weka lines" if has_lines else "weka document"
