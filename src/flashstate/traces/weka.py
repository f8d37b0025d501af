"""Reads Weka JSON: one file a session, as in the public kv-cache-tester traces of Claude Code.

What the format leaves open, and how it is read here:
- A sub-agent is an entry of type "subagent" among `requests`, its requests nested inside, on their own clock.
  Its time is when it ended for a completed one (start = time - duration), else when it was launched.
- `api_time` is missing where a stream's end was not recorded; the gap after such a request then includes it.
- `think_time` is not used: after a request without api_time it counts from an earlier end. Gaps are
  differences of `t`.
- An output of zero tokens (a broken stream) stays zero.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flashstate.traces.fields import Fields
from flashstate.traces.session import BLOCK_TOKENS, MAIN_AGENT, Agent, Session, TraceError, Turn

_SUB_AGENT: Final = "subagent"
_START_SLACK_S: Final = 1.0
"""A sub-agent's computed start lies up to about this long before the end of the request that spawned it."""


def read_weka(path: Path) -> Session:
    """Reads one session. Raises TraceError: no such file, not JSON, or a field that makes no sense."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise TraceError(str(path), "", error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise TraceError(str(path), "", f"not JSON ({error})") from None
    root = Fields(str(path), "", document)
    if "block_size" in root and root.count("block_size") != BLOCK_TOKENS:
        raise root.error("block_size", f"must be {BLOCK_TOKENS} (tokens), not {root.count('block_size')}")
    name = root.text("id") if "id" in root else path.stem
    entries = root.records("requests")
    requests = [_request(entry) for entry in entries if entry.get("type") != _SUB_AGENT]
    if not requests:
        raise root.error("requests", "holds no request of the main agent")
    main = Agent(MAIN_AGENT, None, _turns(requests, start_s=0.0, first_gap_s=0.0))
    subs = [
        _sub_agent(entry, requests, number)
        for number, entry in enumerate((e for e in entries if e.get("type") == _SUB_AGENT), start=1)
    ]
    names = [MAIN_AGENT, *(sub.name for sub in subs)]
    for sub_name in names:
        if names.count(sub_name) > 1:
            raise root.error("requests", f"has two agents named {sub_name!r}")
    return Session(name, main, tuple(subs))


@dataclass(frozen=True)
class _Request:
    time_s: float
    api_s: float  # 0 where it was not recorded
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]


def _request(entry: Fields) -> _Request:
    prompt_tokens = entry.count("in", least=1)
    blocks = entry.counts("hash_ids")
    if len(blocks) != prompt_tokens // BLOCK_TOKENS:
        full = prompt_tokens // BLOCK_TOKENS
        raise entry.error(
            "hash_ids", f"has {len(blocks)} ids, but {prompt_tokens} tokens have {full} full blocks"
        )
    api_s = entry.seconds("api_time") if entry.get("api_time") is not None else 0.0
    return _Request(entry.seconds("t"), api_s, prompt_tokens, entry.count("out"), blocks)


def _turns(requests: Sequence[_Request], start_s: float, first_gap_s: float) -> tuple[Turn, ...]:
    turns, idle_since = [], None
    for r in requests:
        gap_s = first_gap_s if idle_since is None else max(0.0, r.time_s - idle_since)
        turns.append(Turn(start_s + r.time_s, gap_s, r.prompt_tokens, r.output_tokens, r.blocks))
        idle_since = r.time_s + r.api_s
    return tuple(turns)


def _sub_agent(entry: Fields, main: Sequence[_Request], number: int) -> Agent:
    requests = [_request(nested) for nested in entry.records("requests")]
    if not requests:
        raise entry.error("requests", "holds no request")
    start_s = entry.seconds("t")
    if entry.get("status") == "completed" and entry.get("duration_ms") is not None:
        start_s = max(0.0, start_s - entry.seconds("duration_ms") / 1000)
    name = entry.text("agent_id") if "agent_id" in entry else f"agent_{number:03d}"
    ends = [r.time_s + r.api_s for r in main]
    spawn_turn = bisect_right(ends, start_s + _START_SLACK_S) - 1
    if spawn_turn < 0:
        return Agent(name, None, _turns(requests, start_s, first_gap_s=start_s))
    first_gap_s = max(0.0, start_s - ends[spawn_turn])
    return Agent(name, spawn_turn, _turns(requests, start_s, first_gap_s))
