"""Writes our Parquet encoding: requests.parquet, traces.parquet and agents.parquet in a new folder.

Not kept: `split`, `source_blob` and `source_bytes` (empty), which say where an upstream file came from. Unknown from
Mooncake JSONL, and from Weka JSON where marked *: `group`* (the trace itself), `primary`* (true), `dup_of`* (none),
what an agent's tools and system prompt take (0), model, type, stop, input_types and output_types (empty), api_time,
think_time and ttft (null).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from flashstate.traces.files import new_file
from flashstate.traces.names import unique
from flashstate.traces.session import BLOCK_TOKENS, Agent, Session, TraceError, Turn

_NAME: Final = pa.dictionary(pa.int32(), pa.string())
_REQUESTS: Final = pa.schema(
    [
        ("trace_id", _NAME), ("row", pa.int32()), ("agent", pa.int32()), ("turn", pa.int32()),
        ("parent_agent", pa.int32()), ("spawn_row", pa.int32()), ("t", pa.float64()), ("t_trace", pa.float64()),
        ("model", _NAME), ("type", _NAME), ("input_tokens", pa.int32()), ("output_tokens", pa.int32()),
        ("api_time", pa.float32()), ("think_time", pa.float32()), ("ttft", pa.float32()), ("stop", _NAME),
        ("input_types", _NAME), ("output_types", _NAME), ("shared_blocks", pa.int32()), ("ref", pa.int32()),
        ("new_hash_ids", pa.list_(pa.int32())),
    ]
)  # fmt: skip
_TRACES: Final = pa.schema(
    [
        ("trace_id", pa.string()), ("split", pa.string()), ("group", pa.string()), ("primary", pa.bool_()),
        ("dup_of", pa.string()), ("models", pa.list_(pa.string())), ("block_size", pa.int32()),
        ("hash_id_scope", pa.string()), ("tool_tokens", pa.int32()), ("system_tokens", pa.int32()),
        ("n_requests", pa.int32()), ("n_main", pa.int32()), ("n_subagents", pa.int32()), ("source_blob", pa.string()),
        ("source_bytes", pa.int32()),
    ]
)  # fmt: skip
_AGENTS: Final = pa.schema(
    [
        ("trace_id", pa.string()), ("agent", pa.int32()), ("parent_agent", pa.int32()), ("agent_id", pa.string()),
        ("subagent_type", pa.string()), ("status", pa.string()), ("t_marker", pa.float64()),
        ("duration_ms", pa.int64()), ("total_tokens", pa.int64()), ("tool_use_count", pa.int32()),
        ("models", pa.list_(pa.string())), ("tool_tokens", pa.int32()), ("system_tokens", pa.int32()),
        ("n_requests", pa.int32()), ("list_pos", pa.int32()), ("spawn_row", pa.int32()), ("t_start", pa.float64()),
    ]
)  # fmt: skip
_BATCH_ROWS: Final = 4096
_LARGEST: Final = 2**31 - 1


def write_parquet(sessions: Iterable[Session], folder: Path) -> int:
    """Writes all sessions; the folder may exist, its three files may not. Returns how many.

    Raises TraceError if a file exists or cannot be written. Where two sessions have one name, it gets a number.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraceError(str(folder), "", error.strerror or str(error)) from None
    names: set[str] = set()
    with ExitStack() as stack:
        requests, traces, agents = (
            stack.enter_context(_Table(stack.enter_context(new_file(folder / f"{name}.parquet")), schema))
            for name, schema in (("requests", _REQUESTS), ("traces", _TRACES), ("agents", _AGENTS))
        )
        for session in sessions:
            session = replace(session, name=unique(session.name, names))
            places = _places(session)
            traces.add([_trace_row(session)])
            agents.add(_agent_row(session, places, number) for number in range(len(session.agents)))
            requests.add(_request_rows(session, places))
    return len(names)


class _Table:
    """A Parquet file that is written a batch of rows at a time."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        names = [column.name for column in schema if column.type == _NAME or column.type == pa.string()]
        deltas = (
            {"new_hash_ids.list.element": "DELTA_BINARY_PACKED"} if "new_hash_ids" in schema.names else None
        )
        self._writer = pq.ParquetWriter(
            path, schema, compression="zstd", use_dictionary=names, column_encoding=deltas
        )
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> _Table:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._flush()
        self._writer.close()

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Adds rows, in order."""
        self._rows.extend(rows)
        if len(self._rows) >= _BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._rows.clear()


def _places(session: Session) -> list[int]:
    """How many turns of the main agent stand before each sub-agent: all up to the one that spawned it."""
    places: list[int] = []
    for agent in session.sub_agents:
        place = len(session.main.turns) if agent.spawn_turn is None else agent.spawn_turn + 1
        places.append(max([place, *places[-1:]]))
    return places


def _row_of(session: Session, places: Sequence[int], turn: int) -> int:
    """The row of a turn of the main agent: those before it, and the sub-agents among them."""
    subs = zip(session.sub_agents, places, strict=True)
    return turn + sum(len(agent.turns) for agent, place in subs if place <= turn)


def _spawn_row(session: Session, places: Sequence[int], agent: Agent) -> int:
    return -1 if agent.spawn_turn is None else _row_of(session, places, agent.spawn_turn)


def _trace_row(session: Session) -> dict[str, Any]:
    about = session.main.about
    return {
        "trace_id": session.name, "group": session.group or session.name, "primary": session.primary,
        "dup_of": session.copy_of or None, "models": _models(session.main), "block_size": BLOCK_TOKENS,
        "hash_id_scope": "local", "tool_tokens": about.tool_tokens, "system_tokens": about.system_tokens,
        "n_requests": sum(len(agent.turns) for agent in session.agents), "n_main": len(session.main.turns),
        "n_subagents": len(session.sub_agents),
    }  # fmt: skip


def _agent_row(session: Session, places: Sequence[int], number: int) -> dict[str, Any]:
    agent = session.agents[number]
    about, start_s = agent.about, _start_s(agent, number)
    row = {
        "trace_id": session.name, "agent": number, "parent_agent": -1 if number == 0 else 0,
        "models": _models(agent), "tool_tokens": about.tool_tokens, "system_tokens": about.system_tokens,
        "n_requests": len(agent.turns), "spawn_row": -1, "t_start": start_s,
    }  # fmt: skip
    if number > 0:
        took_s = 0.0 if about.status != "completed" else (about.duration_ms or 0.0) / 1000
        row |= {
            "agent_id": agent.name, "subagent_type": about.kind or None, "status": about.status or None,
            "t_marker": round(start_s + took_s, 3),
            "duration_ms": None if about.duration_ms is None else round(about.duration_ms),
            "total_tokens": about.total_tokens, "tool_use_count": about.tool_uses,
            "list_pos": places[number - 1] + number - 1, "spawn_row": _spawn_row(session, places, agent),
        }  # fmt: skip
    return row


def _request_rows(session: Session, places: Sequence[int]) -> list[dict[str, Any]]:
    """Sub-agents stand after the turn that spawned them; a session's ids become small if they are not."""
    numbers = _small_ids(session)
    by_agent = [_agent_rows(session, places, number, numbers) for number in range(len(session.agents))]
    main, *subs = by_agent
    rows: list[dict[str, Any]] = []
    begin = 0
    for place, sub in zip(places, subs, strict=True):
        rows += main[begin:place] + sub
        begin = place
    rows += main[begin:]
    last: dict[int, int] = {}
    for number, row in enumerate(rows):
        row["row"], row["ref"] = number, last.get(row["agent"], -1)
        last[row["agent"]] = number
    return rows


def _agent_rows(
    session: Session, places: Sequence[int], number: int, numbers: dict[int, int] | None
) -> list[dict[str, Any]]:
    agent = session.agents[number]
    start_s = _start_s(agent, number)
    same = {
        "trace_id": session.name, "agent": number, "parent_agent": -1 if number == 0 else 0,
        "spawn_row": _spawn_row(session, places, agent),
    }  # fmt: skip
    return [
        same | {"turn": place} | _turn_row(turn, start_s, numbers) for place, turn in enumerate(agent.turns)
    ]


def _turn_row(turn: Turn, start_s: float, numbers: dict[int, int] | None) -> dict[str, Any]:
    t = round(turn.time_s - start_s, 3)
    return {
        "t": t, "t_trace": start_s + t, "model": turn.model, "type": "s" if turn.streaming else "n",
        "input_tokens": turn.prompt_tokens, "output_tokens": turn.output_tokens, "api_time": turn.api_s,
        "think_time": turn.think_s, "ttft": turn.ttft_s, "stop": turn.stop,
        "input_types": ",".join(turn.input_types), "output_types": ",".join(turn.output_types),
        "shared_blocks": turn.shared_blocks,
        "new_hash_ids": turn.new_blocks if numbers is None else [numbers[block] for block in turn.new_blocks],
    }  # fmt: skip


def _small_ids(session: Session) -> dict[int, int] | None:
    """New numbers for the session's ids, from 1 as they appear; None if all fit into 32 bits as they are."""
    new: Iterable[array[int]] = [turn.new_blocks for agent in session.agents for turn in agent.turns]
    if all(max(ids, default=0) <= _LARGEST for ids in new):
        return None
    numbers: dict[int, int] = {}
    for ids in new:
        for block in ids:
            numbers.setdefault(block, len(numbers) + 1)
    return numbers


def _start_s(agent: Agent, number: int) -> float:
    """Where the agent's own clock starts: a sub-agent's at its first request, the main agent's with the session's."""
    return round(agent.turns[0].time_s, 3) if number else 0.0


def _models(agent: Agent) -> list[str]:
    used = dict.fromkeys(turn.model for turn in agent.turns if turn.model)
    return list(agent.about.models or used)
