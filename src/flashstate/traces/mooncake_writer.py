"""Writes Mooncake JSONL that AIPerf replays, with --custom-dataset-type mooncake_trace --isl-block-size 64.

Rows of an agent have its name as session_id. Its first row has a timestamp, in milliseconds on its session's clock
(traces hold no dates, so every session starts at 0); later rows have a delay, so the next turn follows the answer.
`context_mode` says that each row has the whole prompt. AIPerf does not know it up to 0.13: it would add each prompt to
the one before (chat), or refuse all turns but the first (completions). For those write an open loop, where every row
stands alone and has its recorded time.

Lost: which agent spawned which, server times, stop reasons, models, types. An output of 0 tokens, which no server
takes, is written as 1.
"""

from __future__ import annotations

import gzip
import json
from array import array
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

from flashstate.traces.files import new_file
from flashstate.traces.names import unique
from flashstate.traces.session import BLOCK_TOKENS, MAIN_AGENT, Session

_WHOLE_PROMPTS: Final = "message_array_with_responses"


def write_mooncake(sessions: Iterable[Session], path: Path, open_loop: bool = False) -> int:
    """Writes all sessions, one after another; compressed if the name ends with .gz. Returns how many.

    Raises TraceError if the file exists or cannot be written.
    """
    written = 0
    names: set[str] = set()
    ids = count()
    with new_file(path) as part, gzip.open(part, "wt") if path.suffix == ".gz" else part.open("w") as file:
        for session in sessions:
            for row in _rows(session, names, ids, open_loop):
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
            written += 1
    return written


def _rows(session: Session, names: set[str], ids: Iterator[int], open_loop: bool) -> Iterator[dict[str, Any]]:
    """Ids are made new, since those of two sessions may be the same number and mean different prompts."""
    known: dict[int, int] = {}
    session_name = unique(session.name, names)  # of one name they would be replayed as one
    for agent in session.agents:
        name = session_name if agent.name == MAIN_AGENT else f"{session_name}/{agent.name}"
        for number, (turn, blocks) in enumerate(zip(agent.turns, agent.prompts(), strict=True)):
            row: dict[str, Any] = {}
            if not open_loop:
                row["session_id"] = name
            if number == 0 or open_loop:
                row["timestamp"] = round(turn.time_s * 1000)
            else:
                row["delay"] = round(turn.gap_s * 1000)
            row["input_length"] = turn.prompt_tokens
            row["output_length"] = max(1, turn.output_tokens)
            row["hash_ids"] = _hash_ids(blocks, known, ids)
            if turn.prompt_tokens % BLOCK_TOKENS:
                row["hash_ids"].append(next(ids))  # the rest of the prompt: AIPerf wants an id for it
            if not open_loop:
                row["context_mode"] = _WHOLE_PROMPTS
            yield row


def _hash_ids(blocks: array[int], known: dict[int, int], ids: Iterator[int]) -> list[int]:
    for block in blocks:
        if block not in known:
            known[block] = next(ids)
    return [known[block] for block in blocks]
