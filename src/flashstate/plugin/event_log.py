"""A log of what the engine told FlashState and asked it, in the order it did: enough to replay every decision.

JSON lines, one event each; `flashstate check-log` replays them in the simulator. The log holds the token ids of every
prompt and answer: it is your users' data, readable by the file's owner alone, and yours to delete. Salts, LoRA names
and multimodal contents are in it only as numbers.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Hashable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from flashstate.plugin.settings import SettingsError

if TYPE_CHECKING:
    from flashstate.core.cache import HybridCache
    from flashstate.core.path import TokenPath

VERSION = 1


class EventLog:
    """Appends to one file, unbuffered: a kill loses at most the last line.

    Blocks are named in the order in which the engine took them from its free list, from 1: the first block of the
    tenth time is another than that of the ninth, though it may be the same piece of memory.
    """

    def __init__(self, path: str) -> None:
        """Raises SettingsError if `path` cannot be written."""
        self.now = time.monotonic()
        """The cache's clock, read once for each event."""
        self.written = 0
        """Events so far, lookups apart."""
        self._file = _open(path)
        self._moved: tuple[str, list[int]] | None = None
        self._names: dict[int, int] = {}
        self._taken = 0
        self._namespaces: dict[Hashable, int] = {}
        self._told: dict[str, int] = {}

    def tick(self) -> None:
        """Read the clock for the event to come."""
        self.now = time.monotonic()

    def setup(self, cache: HybridCache, blocks: int, history_tokens: int) -> None:
        """An engine begins, with an empty cache and `blocks` free blocks."""
        about = {"version": VERSION, "policy": cache.policy.name, "settings": asdict(cache.policy.settings)}
        sizes = {"block_tokens": cache.block_tokens, "kv_width": cache.tree.kv_width, "blocks": blocks}
        self.write("setup", **about, **sizes, history_tokens=history_tokens)

    def write(self, event: str, **fields: Any) -> None:
        """One event at `now`."""
        self._settle()
        self.written += event != "lookup"
        self._line({"event": event, "now": self.now, **fields})

    def request(self, request_id: str, path: TokenPath, is_rewritten: bool = False) -> dict[str, Any]:
        """A request and its tokens; only those that are new, unless it has been rewritten since."""
        start = 0 if is_rewritten else self._told.get(request_id, 0)
        fields: dict[str, Any] = {"request": request_id}
        if request_id not in self._told:
            fields["namespace"] = self._namespaces.setdefault(path.namespace, len(self._namespaces))
        if start < len(path) or is_rewritten:
            fields |= {"from": start, "tokens": list(path.tokens(start, len(path)))}  # type: ignore[call-overload]
        self._told[request_id] = len(path)
        return fields

    def forget(self, request_id: str) -> None:
        """The request lost its blocks: its next event, if any, tells all its tokens again."""
        self._told.pop(request_id, None)

    # --- blocks -----------------------------------------------------------------------------------------

    def took(self, block_ids: Iterable[int]) -> None:
        """Name the blocks that the engine was handed."""
        for block_id in block_ids:
            self._taken += 1
            self._names[block_id] = self._taken

    def moved(self, event: str, block_ids: Iterable[int]) -> None:
        """`touched`: requests use unused blocks again. `freed`: no request uses them any more."""
        names = self.names(block_ids)
        if not names:
            return
        if self._moved is None or self._moved[0] != event:
            self._settle()
            self._moved = (event, [])
            self.written += 1
        self._moved[1].extend(names)

    def names(self, block_ids: Iterable[int]) -> list[int]:
        """What the log calls these blocks."""
        return [self._names[block_id] for block_id in block_ids]

    # --- inside -----------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Write the blocks that moved, one event for all of a kind in a row."""
        if self._moved is not None:
            event, names = self._moved
            self._moved = None
            self._line({"event": event, "blocks": names})

    def _line(self, fields: dict[str, Any]) -> None:
        self._file.write(json.dumps(fields, separators=(",", ":")).encode() + b"\n")


def check_writable(path: str) -> None:
    """Raise SettingsError if a log cannot be kept at `path`."""
    _open(path).close()


def _open(path: str) -> Any:
    def private(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600)

    try:
        # Readable too, to see how the last engine's log ended.
        file = open(path, "a+b", buffering=0, opener=private)  # noqa: SIM115
    except OSError as error:
        raise SettingsError(
            f"--event-log {path!r} cannot be written ({error.strerror}): name a file in a folder that can"
        ) from None
    if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
        file.write(b"\n")
    return file
