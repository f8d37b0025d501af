"""Reads our Parquet encoding: a folder with requests.parquet, traces.parquet and agents.parquet.

Rows of a trace are contiguous, so a session is made as soon as its last row was read: one batch of rows and one
session are in memory at a time. Times: `t` counts from the start of its agent, `t_start` places that on the
session's clock. api_time, think_time and ttft are 32-bit: rounded to the two decimals that were recorded.
"""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flashstate.traces.fields import Fields
from flashstate.traces.session import BLOCK_TOKENS, MAIN_AGENT, About, Agent, Session, TraceError, Turn
from flashstate.traces.skip import OnBad, or_raise

Row = Mapping[str, Any]

_BATCH_ROWS: Final = 4096

_TEXT: Final = pa.string()
_WHOLE: Final = pa.int64()
_NUMBER: Final = pa.float64()
_REQUESTS: Final[Mapping[str, pa.DataType]] = {
    "trace_id": _TEXT, "row": _WHOLE, "agent": _WHOLE, "t": _NUMBER, "model": _TEXT, "type": _TEXT,
    "input_tokens": _WHOLE, "output_tokens": _WHOLE, "api_time": _NUMBER, "think_time": _NUMBER, "ttft": _NUMBER,
    "stop": _TEXT, "input_types": _TEXT, "output_types": _TEXT, "shared_blocks": _WHOLE, "ref": _WHOLE,
    "new_hash_ids": pa.list_(_WHOLE),
}  # fmt: skip
_TRACES: Final[Mapping[str, pa.DataType]] = {
    "trace_id": _TEXT, "group": _TEXT, "primary": pa.bool_(), "dup_of": _TEXT, "block_size": _WHOLE,
}  # fmt: skip
_AGENTS: Final[Mapping[str, pa.DataType]] = {
    "trace_id": _TEXT, "agent": _WHOLE, "agent_id": _TEXT, "subagent_type": _TEXT, "status": _TEXT,
    "duration_ms": _WHOLE, "total_tokens": _WHOLE, "tool_use_count": _WHOLE, "models": pa.list_(_TEXT),
    "tool_tokens": _WHOLE, "system_tokens": _WHOLE, "spawn_row": _WHOLE, "t_start": _NUMBER,
}  # fmt: skip


def read_parquet(folder: Path, on_bad: OnBad | None = None) -> Iterator[Session]:
    """Reads session after session, in the order of the rows.

    Raises TraceError for a file that cannot be read, or that lacks a column; for a session that makes no sense
    it calls `on_bad` and goes on, if given, else it raises.
    """
    traces = {row["trace_id"]: row for row in _rows(folder / "traces.parquet", _TRACES)}
    agents: dict[str, list[Row]] = defaultdict(list)
    for row in _rows(folder / "agents.parquet", _AGENTS):
        agents[row["trace_id"]].append(row)
    seen: set[str] = set()
    file = folder / "requests.parquet"
    for name, rows in groupby(_rows(file, _REQUESTS), key=lambda row: row["trace_id"]):
        requests = list(rows)
        try:
            if name in seen:
                raise TraceError(str(file), str(name), "has rows in two places")
            if name not in traces:
                raise TraceError(str(folder / "traces.parquet"), str(name), "is missing")
            session = _session(folder, traces[name], agents[name], requests)
        except TraceError as error:
            or_raise(on_bad, error)
        else:
            yield session
        seen.add(name)


def _rows(file: Path, columns: Mapping[str, pa.DataType]) -> Iterator[Row]:
    """The rows as objects, a batch at a time."""
    try:
        with file.open("rb") as raw, pq.ParquetFile(raw) as table:
            missing = [name for name in columns if name not in table.schema_arrow.names]
            if missing:
                raise TraceError(str(file), missing[0], "is a column that is missing")
            for batch in table.iter_batches(_BATCH_ROWS, columns=list(columns)):
                values = [_values(batch.column(name), kind, file, name) for name, kind in columns.items()]
                yield from (dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True))
    except OSError as error:
        raise TraceError(str(file), "", error.strerror or f"not Parquet ({error})") from None
    except (pa.ArrowException, ValueError) as error:
        raise TraceError(str(file), "", f"not Parquet ({error})") from None


def _values(column: pa.Array, kind: pa.DataType, file: Path, name: str) -> Sequence[Any]:
    try:
        column = column.cast(kind)
    except pa.ArrowException:
        raise TraceError(str(file), name, f"is a column of {column.type}, not of {kind}") from None
    if kind != _REQUESTS["new_hash_ids"]:
        values: list[Any] = column.to_pylist()
        return values
    # Not Python numbers: there are millions. A null among them becomes -1, which is no id.
    flat = column.flatten().fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
    starts = [0, *ends[:-1]]
    return [array("q", flat[a:b].tobytes()) for a, b in zip(starts, ends, strict=True)]


def _session(folder: Path, trace: Row, agents: Sequence[Row], requests: Sequence[Row]) -> Session:
    name = str(trace["trace_id"])
    top = Fields(str(folder / "traces.parquet"), name, trace)
    if top.count("block_size") != BLOCK_TOKENS:
        raise top.error("block_size", f"must be {BLOCK_TOKENS} (tokens), not {top.count('block_size')}")
    by_agent: dict[int, list[Fields]] = defaultdict(list)
    turn_at: dict[int, int] = {}  # row -> turn of the main agent
    for number, request in enumerate(requests):
        row = Fields(str(folder / "requests.parquet"), f"{name}[{number}]", request)
        agent = row.count("agent")
        if agent == 0:
            turn_at[row.count("row")] = len(by_agent[0])
        by_agent[agent].append(row)
    made: list[Agent] = []
    for number, entry in enumerate(agents):
        fields = Fields(str(folder / "agents.parquet"), f"{name}[{number}]", entry)
        if fields.count("agent") != number or not by_agent[number]:
            raise fields.error("agent", f"must be {number}, with rows in requests.parquet")
        made.append(_agent(fields, by_agent[number], made[0] if made else None, turn_at))
    if not made or len(made) < len(by_agent):
        raise TraceError(str(folder / "agents.parquet"), name, f"has {len(made)} of {len(by_agent)} agents")
    main, *subs = made
    return Session(
        name, main, tuple(subs), top.flag("primary"), top.maybe_text("group"), top.maybe_text("dup_of")
    )


def _agent(fields: Fields, rows: Sequence[Fields], main: Agent | None, turn_at: Mapping[int, int]) -> Agent:
    about = About(
        fields.maybe_text("subagent_type"), fields.maybe_text("status"), fields.maybe_seconds("duration_ms"),
        fields.maybe_count("total_tokens"), fields.maybe_count("tool_use_count"), fields.texts("models"),
        fields.count("tool_tokens"), fields.count("system_tokens"),
    )  # fmt: skip
    start_s = fields.seconds("t_start")
    if main is None:
        return Agent(MAIN_AGENT, None, _turns(rows, start_s, idle_since=None), about)
    spawn_turn = turn_at.get(fields.count("spawn_row", least=-1))
    idle_since = 0.0 if spawn_turn is None else main.turns[spawn_turn].end_s
    return Agent(fields.text("agent_id"), spawn_turn, _turns(rows, start_s, idle_since), about)


def _turns(rows: Sequence[Fields], start_s: float, idle_since: float | None) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    before = -1
    for row in rows:
        time_s = start_s + row.seconds("t")
        gap_s = 0.0 if idle_since is None else max(0.0, time_s - idle_since)
        turn = Turn(
            time_s, gap_s, row.count("input_tokens", least=1), row.count("output_tokens"),
            row.count("shared_blocks"), row.ids("new_hash_ids"), _hundredths(row, "api_time"),
            _hundredths(row, "think_time"), _hundredths(row, "ttft"), row.maybe_text("stop"),
            row.maybe_text("model"), row.get("type") == "s", _types(row, "input_types"), _types(row, "output_types"),
        )  # fmt: skip
        if row.get("ref") != before:
            raise row.error("ref", f"must be {before}, the row of the agent's previous request")
        if turn.shared_blocks > (turns[-1].block_count if turns else 0):
            raise row.error("shared_blocks", "is more than the previous request has")
        if turn.block_count != turn.prompt_tokens // BLOCK_TOKENS:
            full = turn.prompt_tokens // BLOCK_TOKENS
            reason = f"{turn.block_count} ids in all, but {turn.prompt_tokens} tokens have {full} full blocks"
            raise row.error("new_hash_ids", reason)
        turns.append(turn)
        before, idle_since = row.count("row"), turn.end_s
    return tuple(turns)


def _hundredths(row: Fields, name: str) -> float | None:
    value = row.maybe_seconds(name)
    return None if value is None else round(value, 2)


def _types(row: Fields, name: str) -> tuple[str, ...]:
    return tuple(sys.intern(part) for part in row.maybe_text(name).split(",") if part)
