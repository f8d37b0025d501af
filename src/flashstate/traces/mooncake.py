"""Reads Mooncake JSONL: a request a line, as in the public Mooncake traces and as AIPerf replays them.

    {"timestamp": 0, "input_length": 6755, "output_length": 500, "hash_ids": [0, 1, ...]}

What the format leaves open, and how it is read here:
- Times are milliseconds. Rows with the same `session_id` are the turns of one session, in file order: `delay` is the
  wait after the end of the one before; without it the wait is taken from the timestamps. A row without a session_id
  is a session of its own, and what it shares with others is not looked for.
- Each row has its whole prompt. Rows that only add to the prompt before (AIPerf's `deltas_...` modes) say so in
  `context_mode`, or not at all; the first are refused.
- Tokens a hash id are not recorded: the power of two that fits the first rows, 512 where several do. A prompt's last
  id may stand for a part of a block, or be left out.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Final

import numpy as np

from flashstate.traces.blocks import common_blocks
from flashstate.traces.fields import Fields, parse
from flashstate.traces.files import read_lines, stem
from flashstate.traces.session import BLOCK_TOKENS, MAIN_AGENT, Agent, Session, TraceError, Turn
from flashstate.traces.skip import OnBad, or_raise

DEFAULT_BLOCK_TOKENS: Final = 512
"""What the public traces have, and what AIPerf assumes."""

_BLOCK_SIZES: Final = frozenset(2**power for power in range(4, 15))
_TELLING_ROWS: Final = 1000
"""So many rows are asked for the block size; one of three ids or more settles it."""
_SESSION_ID: Final = re.compile(rb'"session_id"\s*:\s*"([^"\\]*)"')
_INVENTED: Final = 2**62
"""Ids from here on are ours, for blocks that have none."""


def read_mooncake(path: Path, on_bad: OnBad | None = None) -> Iterator[Session]:
    """Reads session after session, in the order in which they end.

    Reads the file twice, first for where each session ends: only sessions between their first and last row are in
    memory. Raises TraceError; a bad row goes to `on_bad`, if given, and its session goes on without it.
    """
    ends, block_tokens = _survey(path)
    open_sessions: dict[str, _Growing] = {}
    invented = count(_INVENTED)
    for number, line in read_lines(path):
        file = f"{path}:{number}"
        name = None
        try:
            row = Fields(file, "", parse(line, file))
            name = row.text("session_id") if row.get("session_id") is not None else None
            growing = open_sessions.get(name or "") or _Growing(name or f"{stem(path)}:{number}")
            growing.add(row, block_tokens, invented)
            if name is not None:
                open_sessions[name] = growing
            else:
                yield growing.session()
        except TraceError as error:
            or_raise(on_bad, error)
        for ended in ends.pop(number, ()):
            if ended in open_sessions:
                yield open_sessions.pop(ended).session()
    for growing in open_sessions.values():
        yield growing.session()


@dataclass
class _Growing:
    """A session of which more rows may come."""

    name: str
    turns: list[Turn] = field(default_factory=list)
    blocks: array[int] = field(default_factory=lambda: array("q"))

    def add(self, row: Fields, block_tokens: int, invented: Iterator[int]) -> None:
        """The session's next row."""
        if str(row.get("context_mode")).startswith("deltas"):
            raise row.error("context_mode", "must not be deltas: each row must have its whole prompt")
        prompt_tokens, output_tokens = row.count("input_length", least=1), row.count("output_length")
        blocks = _blocks(row, prompt_tokens, block_tokens, invented)
        time_s, gap_s = self._times(row)
        shared = common_blocks(self.blocks, blocks)
        self.turns.append(Turn(time_s, gap_s, prompt_tokens, output_tokens, shared, blocks[shared:]))
        self.blocks = blocks

    def _times(self, row: Fields) -> tuple[float, float]:
        """Start and wait. A row with both tells how long the request before took."""
        at_ms, delay_ms = row.maybe_seconds("timestamp"), row.maybe_seconds("delay")
        if not self.turns:
            return (at_ms or 0.0) / 1000, 0.0
        before = self.turns[-1]
        gap_s = 0.0 if delay_ms is None else delay_ms / 1000
        time_s = before.time_s + gap_s if at_ms is None else at_ms / 1000
        if delay_ms is None:
            gap_s = max(0.0, time_s - before.time_s)
        elif at_ms is not None and time_s - before.time_s >= gap_s:
            self.turns[-1] = replace(before, api_s=round(time_s - before.time_s - gap_s, 3))
        return time_s, gap_s

    def session(self) -> Session:
        """All rows so far."""
        return Session(self.name, Agent(MAIN_AGENT, None, tuple(self.turns)), ())


def _blocks(row: Fields, prompt_tokens: int, block_tokens: int, invented: Iterator[int]) -> array[int]:
    """The ids of the prompt's full 64-token blocks, made of the row's ids.

    An id names a whole prefix: so the last of several finer ids names the block that they fill, and a coarser one
    names each of its parts, once they are numbered.
    """
    given = row.ids("hash_ids")
    whole, full = -(-prompt_tokens // block_tokens), prompt_tokens // BLOCK_TOKENS
    if len(given) not in (whole, prompt_tokens // block_tokens):
        reason = f"has {len(given)} ids, but {prompt_tokens} tokens have {whole} blocks of {block_tokens}"
        raise row.error("hash_ids", reason)
    ids = np.frombuffer(given, np.int64)
    if block_tokens > BLOCK_TOKENS:
        parts = block_tokens // BLOCK_TOKENS
        ids = (ids[:, None] * parts + np.arange(parts)).ravel()
    elif block_tokens < BLOCK_TOKENS:
        ids = ids[BLOCK_TOKENS // block_tokens - 1 :: BLOCK_TOKENS // block_tokens]
    blocks = array("q", ids[:full].tobytes())
    blocks.extend(next(invented) for _ in range(full - len(blocks)))
    return blocks


def _survey(path: Path) -> tuple[dict[int, list[str]], int]:
    """Which sessions end at which line, and the tokens a hash id."""
    last: dict[str, int] = {}
    sizes = _BlockSizes()
    for number, line in read_lines(path):
        if not sizes.settled or b"\\" in line or line.count(b'"session_id"') > 1:
            document = _maybe_row(line)
            name = document.get("session_id")
            sizes.see(document)
        else:
            found = _SESSION_ID.search(line)
            name = found[1].decode(errors="replace") if found else None
        if isinstance(name, str):
            last[name] = number
    ends: dict[int, list[str]] = {}
    for name, number in last.items():
        ends.setdefault(number, []).append(name)
    return ends, sizes.likely


def _maybe_row(line: bytes) -> dict[str, object]:
    try:
        row = parse(line, "")
    except TraceError:
        return {}  # reported when it is read
    return row if isinstance(row, dict) else {}


class _BlockSizes:
    """Which sizes fit the rows so far: with an id for a part of a block at the end, or without."""

    def __init__(self) -> None:
        self._with_part, self._without = _BLOCK_SIZES, _BLOCK_SIZES
        self._rows = 0

    def see(self, row: dict[str, object]) -> None:
        """Narrows the choice, unless the row is broken."""
        self._rows += 1
        tokens, ids = row.get("input_length"), row.get("hash_ids")
        if not isinstance(tokens, int) or not isinstance(ids, list):
            return
        with_part = {size for size in self._with_part if -(-tokens // size) == len(ids)}
        without = {size for size in self._without if tokens // size == len(ids)}
        if with_part or without:
            self._with_part, self._without = frozenset(with_part), frozenset(without)

    @property
    def settled(self) -> bool:
        """Whether more rows would change nothing."""
        return len(self._with_part | self._without) == 1 or self._rows >= _TELLING_ROWS

    @property
    def likely(self) -> int:
        """The usual one if it fits, else the largest that does."""
        fits = self._with_part or self._without
        return DEFAULT_BLOCK_TOKENS if DEFAULT_BLOCK_TOKENS in fits else max(fits)
