"""Reads Weka JSON, as in the public kv-cache-tester traces of Claude Code: a session a file, or a session a line.

What the format leaves open, and how it is read here:
- A sub-agent is an entry of type "subagent" among `requests`, its requests nested inside, on their own clock.
  Its time is when it ended for a completed one (start = time - duration), else when it was launched.
- `api_time` is missing where a stream's end was not recorded; the gap after such a request then includes it.
- `think_time` is kept, but not used: after a request without api_time it counts from an earlier end. Gaps are
  differences of `t`.
- An output of zero tokens (a broken stream) stays zero.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from flashstate.traces.blocks import common_blocks
from flashstate.traces.fields import Fields, parse
from flashstate.traces.files import read_all, read_lines, stem
from flashstate.traces.session import BLOCK_TOKENS, MAIN_AGENT, About, Agent, Session, TraceError, Turn
from flashstate.traces.skip import OnBad, or_raise

_SUB_AGENT: Final = "subagent"
_START_SLACK_S: Final = 1.0
"""A sub-agent's computed start lies up to about this long before the end of the request that spawned it."""
_SPAWN_WITHIN_S: Final = 600.0
"""Requests take 300 s at most. What starts later than this after the last one was spawned by none that is recorded."""


def read_weka(path: Path) -> Session:
    """Reads one session. Raises TraceError: no such file, not JSON, or a field that makes no sense."""
    return _session(Fields(str(path), "", parse(read_all(path), str(path))), stem(path))


def read_weka_lines(path: Path, on_bad: OnBad | None = None) -> Iterator[Session]:
    """Reads a session from each line. Raises TraceError; a bad line goes to `on_bad`, if given."""
    for number, line in read_lines(path):
        file = f"{path}:{number}"
        try:
            session = _session(Fields(file, "", parse(line, file)), f"{stem(path)}:{number}")
        except TraceError as error:
            or_raise(on_bad, error)
        else:
            yield session


def _session(root: Fields, name: str) -> Session:
    """`name` stands in for an `id` that is missing."""
    if "block_size" in root and root.count("block_size") != BLOCK_TOKENS:
        raise root.error("block_size", f"must be {BLOCK_TOKENS} (tokens), not {root.count('block_size')}")
    if "id" in root:
        name = root.text("id")
    entries = root.records("requests")
    requests = [entry for entry in entries if entry.get("type") != _SUB_AGENT]
    if not requests:
        raise root.error("requests", "holds no request of the main agent")
    main = Agent(MAIN_AGENT, None, _turns(requests, start_s=0.0, idle_since=None), _about(root))
    subs = [
        _sub_agent(entry, main, number)
        for number, entry in enumerate((e for e in entries if e.get("type") == _SUB_AGENT), start=1)
    ]
    names = [MAIN_AGENT, *(sub.name for sub in subs)]
    for sub_name in names:
        if names.count(sub_name) > 1:
            raise root.error("requests", f"has two agents named {sub_name!r}")
    return Session(name, main, tuple(subs))


def _turns(requests: Sequence[Fields], start_s: float, idle_since: float | None) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    before: array[int] = array("q")
    for entry in requests:
        blocks, prompt_tokens = _blocks(entry), entry.count("in", least=1)
        time_s = start_s + entry.seconds("t")
        gap_s = 0.0 if idle_since is None else max(0.0, time_s - idle_since)
        shared = common_blocks(before, blocks)
        turn = Turn(
            time_s, gap_s, prompt_tokens, entry.count("out"), shared, blocks[shared:], entry.maybe_seconds("api_time"),
            entry.maybe_seconds("think_time"), entry.maybe_seconds("ttft"), entry.maybe_text("stop"),
            entry.maybe_text("model"), entry.get("type") == "s", entry.texts("input_types"),
            entry.texts("output_types"),
        )  # fmt: skip
        turns.append(turn)
        before, idle_since = blocks, turn.end_s
    return tuple(turns)


def _blocks(entry: Fields) -> array[int]:
    prompt_tokens, blocks = entry.count("in", least=1), entry.ids("hash_ids")
    full = prompt_tokens // BLOCK_TOKENS
    if len(blocks) != full:
        raise entry.error(
            "hash_ids", f"has {len(blocks)} ids, but {prompt_tokens} tokens have {full} full blocks"
        )
    return blocks


def _sub_agent(entry: Fields, main: Agent, number: int) -> Agent:
    requests = entry.records("requests")
    if not requests:
        raise entry.error("requests", "holds no request")
    about = _about(entry)
    start_s = entry.seconds("t")
    if about.status == "completed" and about.duration_ms is not None:
        start_s = max(0.0, round(start_s - about.duration_ms / 1000, 3))
    name = entry.text("agent_id") if "agent_id" in entry else f"agent_{number:03d}"
    ends = [turn.end_s for turn in main.turns]
    spawn_turn = bisect_right(ends, start_s + _START_SLACK_S) - 1
    if spawn_turn < 0 or start_s > ends[spawn_turn] + _SPAWN_WITHIN_S:
        return Agent(name, None, _turns(requests, start_s, idle_since=0.0), about)
    return Agent(name, spawn_turn, _turns(requests, start_s, ends[spawn_turn]), about)


def _about(entry: Fields) -> About:
    return About(
        entry.maybe_text("subagent_type"), entry.maybe_text("status"), entry.maybe_seconds("duration_ms"),
        entry.maybe_count("total_tokens"), entry.maybe_count("tool_use_count"), entry.texts("models"),
        entry.maybe_count("tool_tokens") or 0, entry.maybe_count("system_tokens") or 0,
    )  # fmt: skip
