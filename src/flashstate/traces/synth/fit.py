"""Makes parameters of recorded sessions: shares, quantiles and correlations, nothing of a single session."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from flashstate.traces.session import BLOCK_TOKENS, Session
from flashstate.traces.synth.behaviour import fit_behaviour
from flashstate.traces.synth.circumstances import RATIO, at_ratio
from flashstate.traces.synth.correlate import fit_correlation, rank_correlation
from flashstate.traces.synth.names import WINDOW_TOKENS
from flashstate.traces.synth.observe import Seen, observe
from flashstate.traces.synth.params import Params, Returns, Start
from flashstate.traces.synth.sub_agents import fit_sub_agents
from flashstate.traces.synth.tables import ALONE, fit_tables, short

LEAST_SESSIONS = 10
LEAST_TURNS = 100
"""Of main agents, that extend the one before. Below these, quantiles say little."""

_STARTS = (30_000, 60_000, 120_000, 250_000)
"""First prompts (tokens) that tell kinds of sessions apart."""
_LEAST_STARTS = 20


class FitError(Exception):
    """Too little was recorded. One line."""


def fit(sessions: Iterable[Session], source: str) -> Params:
    """Fits to all sessions that stand for themselves (`primary`). Raises FitError."""
    kept = [session for session in sessions if session.primary]
    seen = [turn for number, session in enumerate(kept) for turn in observe(number, session)]
    main = [turn for turn in seen if turn.agent[1] == 0]
    growing = sum(turn.grows for turn in main)
    if len(kept) < LEAST_SESSIONS or growing < LEAST_TURNS:
        raise FitError(
            f"{len(kept)} sessions with {growing} prompts that extend the one before are too few to fit:"
            f" {LEAST_SESSIONS} and {LEAST_TURNS} are needed"
        )
    behaviour = fit_behaviour(main)
    subs = [turn for turn in seen if turn.agent[1] > 0]
    return Params(
        source, len(kept), len(seen), _windows(main), _starts(main), behaviour, _returns(main),
        fit_sub_agents(kept, subs, behaviour), fit_correlation(main, behaviour),
    )  # fmt: skip


def _windows(main: Sequence[Seen]) -> tuple[int, int]:
    window = max((s.turn.prompt_tokens for s in main if not s.is_long), default=WINDOW_TOKENS)
    longest = max((s.turn.prompt_tokens for s in main if s.is_long), default=window)
    return int(short(window)), int(short(longest))


def _starts(main: Sequence[Seen]) -> tuple[Start, ...]:
    """Sessions by long or not, streaming or not, and size of the first prompt; small kinds join a neighbour."""
    firsts = [s for s in main if s.before is None]
    by_session = groupby(main, key=lambda s: s.agent)
    streams = {agent: float(np.mean([s.turn.streaming for s in turns])) > 0.5 for agent, turns in by_session}
    starts = []
    for is_long in (False, True):
        for streaming in (False, True):
            kind = [s for s in firsts if s.is_long == is_long and streams[s.agent] == streaming]
            for part in _by_first_prompt(kind):
                prompts = fit_tables(ALONE, (((), s.turn.prompt_tokens) for s in part))
                turns = fit_tables(ALONE, (((), s.turns) for s in part))
                together = rank_correlation([(s.turn.prompt_tokens, s.turns) for s in part])
                starts.append(
                    Start(short(len(part) / len(firsts)), is_long, streaming, prompts, turns, together)
                )
    return tuple(starts)


def _by_first_prompt(firsts: Sequence[Seen]) -> list[list[Seen]]:
    parts: list[list[Seen]] = [[]]
    for low, high in zip((0, *_STARTS), (*_STARTS, math.inf), strict=True):
        if len(parts[-1]) >= _LEAST_STARTS:
            parts.append([])
        parts[-1] += [s for s in firsts if low <= s.turn.prompt_tokens < high]
    if len(parts) > 1 and len(parts[-1]) < _LEAST_STARTS:
        last = parts.pop()
        parts[-1] += last
    return [part for part in parts if part]


def _deep_part(turns: Iterable[Seen]) -> float:
    return float(np.mean([s.edit.is_deep for s in turns]))


def _returns(main: Sequence[Seen]) -> Returns:
    deep = [s for s in main if s.edit.is_deep]
    kept = [s.turn.shared_blocks for s in deep]
    able = [s for s in deep if s.could_return]
    returned = [s.returned_blocks for s in able if s.returned_blocks > 0]
    ratios = (
        (at_ratio(s.edit, s.previous.prompt_tokens), s.turn.prompt_tokens / s.previous.prompt_tokens)
        for s in deep
    )
    return Returns(
        short(max(_deep_part(turns) for _, turns in groupby(main, key=lambda s: s.agent))),
        fit_tables(RATIO, ratios),
        fit_tables(ALONE, (((), blocks * BLOCK_TOKENS) for blocks in kept if blocks)),
        short(kept.count(0) / len(kept)) if kept else 0.0,
        short(len(returned) / len(able)) if able else 0.0,
        fit_tables(ALONE, (((), blocks) for blocks in returned)),
    )
