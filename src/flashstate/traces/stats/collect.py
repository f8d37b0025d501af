"""Gathers the figures of a set of sessions in one pass; sessions are not kept."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from flashstate.traces.session import BLOCK_TOKENS, Agent, Session, Turn

CUTS_BLOCKS: Final = (1, 4, 16, 64, 256, 1024)
"""Upper ends of the classes of how far an edit cuts back; the last class has none."""

_TOOL_RESULT: Final = "tool_result"
_BEFORE_CONVERSATION: Final = (-1, 16)
"""An edit that keeps this many blocks around the end of tools and system prompt starts the conversation anew."""
_THINK_SLACK_S: Final = 1.0
"""think_time is in whole seconds."""


class Collector:
    """`series` holds every value of a quantity, `counts` how often something was seen, `kinds` which texts."""

    def __init__(self) -> None:
        self.series: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        self.counts: Counter[str] = Counter()
        self.kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add_all(self, sessions: Iterable[Session]) -> Collector:
        """Adds all, one after another."""
        for session in sessions:
            self.add(session)
        return self

    def add(self, session: Session) -> None:
        """Adds one session."""
        self._add_session(session)
        seen: set[int] = set()
        edits = self.counts["edits"]
        for agent in session.agents:
            last_end_s: float | None = None
            for number, turn in enumerate(agent.turns):
                before = agent.turns[number - 1] if number else None
                self._add_turn(turn)
                if before is not None:
                    self._add_later(before, turn, is_main=agent is session.main)
                    self._add_wait(before, turn)
                    self._check_think_time(before, turn, last_end_s)
                    if turn.shared_blocks < before.block_count:
                        self._add_edit(agent, before, turn)
                self._add_reuse(before, turn, seen)
                last_end_s = last_end_s if turn.api_s is None else turn.end_s
        self._put("unique blocks per trace", len(seen))
        self.counts["traces with no edit"] += self.counts["edits"] == edits

    def _put(self, name: str, value: float) -> None:
        self.series[name].append(value)

    def _add_session(self, session: Session) -> None:
        counts, main = self.counts, session.main.turns
        requests = sum(len(agent.turns) for agent in session.agents)
        counts["traces"] += 1
        counts["requests"] += requests
        counts["requests_main"] += len(main)
        counts["subagents"] += len(session.sub_agents)
        counts["traces_with_subagents"] += bool(session.sub_agents)
        counts["exact_duplicate_traces"] += bool(session.copy_of)
        counts["primary traces"] += session.primary
        for agent in session.sub_agents:
            self._put("requests per sub-agent", len(agent.turns))
            self.kinds["sub-agent types"][agent.about.kind] += 1
            self.kinds["sub-agent status"][agent.about.status] += 1
            self.kinds["spawning request"]["not found" if agent.spawn_turn is None else "found"] += 1
        if session.sub_agents:
            self._put("sub-agents per trace that has any", len(session.sub_agents))
        self._put("requests per trace", requests)
        self._put("first prompt of a trace", main[0].prompt_tokens)
        self._put("last prompt of a trace", main[-1].prompt_tokens)
        self._put("trace duration", main[-1].time_s - main[0].time_s)

    def _add_turn(self, turn: Turn) -> None:
        counts = self.counts
        self._put("prompt tokens", turn.prompt_tokens)
        self._put("prompt tokens in full blocks", turn.block_count * BLOCK_TOKENS)
        self._put("output tokens", turn.output_tokens)
        if turn.api_s is not None:
            self._put("api_time", turn.api_s)
        if turn.ttft_s is not None and turn.streaming:
            self._put("ttft (streams only)", turn.ttft_s)
        counts["blocks"] += turn.block_count
        counts["api_time_absent"] += turn.api_s is None
        counts["input_tokens!=64*len(hash_ids)"] += turn.prompt_tokens % BLOCK_TOKENS != 0
        counts["output_tokens==0"] += turn.output_tokens == 0
        counts["output_types_empty"] += not turn.output_types
        counts["stop_empty"] += not turn.stop
        counts["think_time_absent"] += turn.think_s is None
        self.kinds["models"][turn.model] += 1
        self.kinds["types"]["streaming" if turn.streaming else "not streaming"] += 1
        self.kinds["stops"][turn.stop] += 1

    def _add_later(self, before: Turn, turn: Turn, is_main: bool) -> None:
        counts = self.counts
        cut = before.block_count - turn.shared_blocks
        counts["later requests"] += 1
        counts["later requests, main"] += is_main
        counts["extends"] += cut == 0
        counts["extends, main"] += cut == 0 and is_main
        counts["extends but for the last block"] += cut <= 1
        is_short = turn.prompt_tokens < before.prompt_tokens + before.output_tokens
        counts["extends but input < previous input + output"] += cut == 0 and is_short
        counts["model_switch_within_agent"] += turn.model != before.model
        counts["prev_has_no_api_time"] += before.api_s is None
        counts["t_decreases_within_agent"] += turn.time_s < before.time_s
        counts["t_equal_within_agent"] += turn.time_s == before.time_s
        new_tokens = turn.prompt_tokens - turn.shared_blocks * BLOCK_TOKENS
        self._put("prompt tokens not in the previous prompt", new_tokens)

    def _add_wait(self, before: Turn, turn: Turn) -> None:
        kind = "tool-result" if _TOOL_RESULT in turn.input_types else "user-text"
        if turn.think_s is not None:
            self._put("think_time, as recorded", turn.think_s)
            self._put(f"think_time before a {kind} request", turn.think_s)
        if before.api_s is None:
            return
        gap_s = turn.time_s - before.time_s - before.api_s
        self._put("gap t[i]-t[i-1]-api_time[i-1]", gap_s)
        self._put(f"gap, {kind} requests", gap_s)
        if turn.api_s is not None:
            self._put(f"gap minus own api_time, {kind}", gap_s - turn.api_s)
        self.counts["overlap_prev_request_by_<=1s"] += -1 <= gap_s < 0
        self.counts["overlap_prev_request_by_>1s"] += gap_s < -1

    def _check_think_time(self, before: Turn, turn: Turn, last_end_s: float | None) -> None:
        """think_time counts from `last_end_s`, the end of the agent's last request whose end is known."""
        counts, think_s = self.counts, turn.think_s
        if think_s is None:
            return
        counts["think_time_negative"] += think_s < 0
        counts["think_time_zero"] += think_s == 0
        if before.api_s is not None:
            is_off = abs(max(0.0, turn.time_s - before.end_s) - think_s) > _THINK_SLACK_S
            counts["think_time_off_from_t_by_>1s(prev has api_time)"] += is_off
            return
        counts["think_time>dt(prev has no api_time)"] += think_s > turn.time_s - before.time_s
        counts["think_time_counts_from_last_request_with_api_time"] += (
            last_end_s is not None and abs(turn.time_s - last_end_s - think_s) <= _THINK_SLACK_S
        )

    def _add_edit(self, agent: Agent, before: Turn, turn: Turn) -> None:
        counts, kept = self.counts, turn.shared_blocks
        cut_tokens = (before.block_count - kept) * BLOCK_TOKENS
        counts["edits"] += 1
        counts[f"cut class {sum(cut_tokens > most * BLOCK_TOKENS for most in CUTS_BLOCKS)}"] += 1
        self._put("cut tokens", cut_tokens)
        self._put("cut as a share of the previous prompt", cut_tokens / before.prompt_tokens)
        head = (agent.about.tool_tokens + agent.about.system_tokens) // BLOCK_TOKENS
        low, high = (head + slack for slack in _BEFORE_CONVERSATION)
        where = "inside" if kept < low else "at the end" if kept <= high else "in conversation"
        counts[f"divergence: {where if kept else 'zero blocks kept'}"] += 1
        counts["zero_blocks_kept_with_model_switch"] += kept == 0 and turn.model != before.model
        ratio = turn.prompt_tokens / before.prompt_tokens
        counts[f"after: {'shorter' if ratio < 0.9 else 'same' if ratio <= 1.1 else 'longer'}"] += 1

    def _add_reuse(self, before: Turn | None, turn: Turn, seen: set[int]) -> None:
        """`seen`: every id of the session so far, sub-agents after the main agent."""
        older = next(
            (i for i, block in enumerate(turn.new_blocks) if block not in seen), len(turn.new_blocks)
        )
        self.counts["blocks in the previous request"] += turn.shared_blocks
        self.counts["blocks in any earlier request"] += turn.shared_blocks + older
        if before is not None and turn.shared_blocks < before.block_count:
            self.counts["edits whose prefix reaches further in an older request"] += older > 0
        seen.update(turn.new_blocks)
