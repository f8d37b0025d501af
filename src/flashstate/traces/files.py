"""Files as bytes and lines, compressed or not, with errors that fit on one line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from flashstate.files import check_regular, replacing
from flashstate.traces.session import TraceError

LONGEST: Final = 512 * 2**20
"""Bytes that one record may take: many times the largest session, and it fits in memory."""

_GZIP: Final = b"\x1f\x8b"
_SUFFIXES: Final = (".gz", ".jsonl", ".json")


def stem(path: Path) -> str:
    """The file's name without .json, .jsonl and .gz."""
    name = path.name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name or path.name


def read_all(path: Path) -> bytes:
    """The whole file, decompressed. Raises TraceError, also for more than LONGEST."""
    with _opened(path) as file:
        content = file.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise TraceError(
            str(path), "", f"is one record of more than {LONGEST} bytes: write one session a line"
        )
    return content


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers from 1; one is in memory at a time. Raises TraceError."""
    with _opened(path) as file:
        number = 0
        while line := file.readline(LONGEST + 1):
            number += 1
            if len(line) > LONGEST:
                raise TraceError(f"{path}:{number}", "", f"is a line of more than {LONGEST} bytes")
            if not line.isspace():
                yield number, line


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        check_regular(path)
        with path.open("rb") as file:
            start = file.read(len(_GZIP))
            file.seek(0)
            if start != _GZIP:
                yield file
                return
            with gzip.open(file) as unpacked:
                yield unpacked  # type: ignore[misc]  # a GzipFile reads as a BinaryIO does
    except OSError as error:
        raise TraceError(str(path), "", error.strerror or str(error)) from None
    except (EOFError, zlib.error) as error:
        raise TraceError(str(path), "", f"is broken gzip ({error})") from None


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A place to write to that becomes `path` once all went well. Raises TraceError, also if `path` exists."""
    if not path.name:
        raise TraceError(str(path), "", "names no file")
    try:
        if path.exists():
            raise TraceError(str(path), "", "exists already: name another, or remove it")
        with replacing(path) as part:
            yield part
    except OSError as error:
        raise TraceError(str(path), "", error.strerror or str(error)) from None
