"""Files that are read as a whole or not at all, and written so."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def check_regular(path: Path) -> None:
    """Raises OSError for what is there but no file: a pipe would be waited for, for ever."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is not a regular file", str(path))


def hold(file: IO[str] | int) -> bool:
    """Keeps other writers out of an open file until it is closed; False if one has it. Raises OSError."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to, which becomes `path` once all went well and leaves nothing if it did not.

    Raises OSError; it names `path`, whatever file the system complained about.
    """
    target = path.resolve() if path.is_symlink() else path
    part = target.with_name(f"{target.name}.part")
    try:
        try:
            yield part
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8, whole or not at all, into a folder that is made if need be. Raises OSError, which names `path`.

    What is there and is no file, such as /dev/stdout, cannot be replaced and is written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
