"""Fits how agents go on from turn to turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from flashstate.traces.synth import circumstances as at
from flashstate.traces.synth.names import DROPS, STOPS, TOOL_RESULT, USER, Edit
from flashstate.traces.synth.observe import Seen
from flashstate.traces.synth.params import ApiTime, Behaviour
from flashstate.traces.synth.tables import ALONE, Shares, Tables, fit_shares, fit_tables, short

_MOST_SPREAD: Final = 5.0


def fit_behaviour(seen: Sequence[Seen]) -> Behaviour:
    """Of all turns of some agents."""
    later = [s for s in seen if s.before is not None]
    whole = [s for s in later if s.edit is Edit.EXTENDS]
    cuts = [s for s in later if Edit.CUTS_ONE <= s.edit <= Edit.CUTS_MORE]
    stops = fit_shares(at.AFTER, ((_at_stop(s), _stop(s)) for s in seen if not s.is_last), len(STOPS))
    edits = fit_shares(at.EDIT, ((at_edit(s), s.edit) for s in later), len(Edit))
    drops = fit_shares(at.OUTPUT, (((s.previous.output_tokens,), not s.grows) for s in whole), 2)
    return Behaviour(
        stops=stops,
        last_stops=fit_shares(ALONE, (((), _stop(s)) for s in seen if s.is_last), len(STOPS)),
        edits=edits,
        drops_output=drops,
        growth=fit_tables(at.GROWTH, ((at_growth(s), s.growth) for s in whole if s.grows)),
        kept_output=fit_tables(
            ALONE, (((), s.gain / s.previous.output_tokens) for s in whole if not s.grows)
        ),
        cut_growth=fit_tables(at.KIND, (((s.edit,), s.gain) for s in cuts)),
        cut_blocks=fit_tables(at.KIND, (((s.edit,), s.cut_blocks) for s in cuts)),
        output=fit_tables(at.STOP, (((_stop(s),), s.turn.output_tokens) for s in seen)),
        api=_api_time(seen),
        timed=fit_shares(at.STOP, (((_stop(s),), s.turn.api_s is not None) for s in seen), 2),
        ttft=_ttft(seen),
        gap_s=fit_tables(at.GAP, ((at_gap(s), s.turn.gap_s) for s in later)),
        tool_s=_tool_s(later),
        tool_results=fit_shares(
            at.TYPES, ((at.at_types(s.previous.stop, s.edit), TOOL_RESULT in s.turn.input_types) for s in later), 2
        ),
        spread=_spreads(later, stops, edits, drops),
    )  # fmt: skip


def at_growth(seen: Seen) -> at.Where:
    """Where a later turn is on the axes of growth."""
    before = seen.previous
    return at.at_growth(before.stop, seen.number, before.prompt_tokens, seen.first_prompt, seen.turns)


def at_gap(seen: Seen) -> at.Where:
    """Where a later turn is on the axes of gaps."""
    return at.at_gap(seen.previous.stop, seen.edit, seen.turns)


def at_edit(seen: Seen) -> at.Where:
    """Where a later turn is on the axes of edits."""
    before = seen.previous
    return at.at_edit(before.stop, seen.turns, seen.after_shrink, before.prompt_tokens, seen.is_long)


def _stop(seen: Seen) -> int:
    return at.stop_index(seen.turn.stop)


def _at_stop(seen: Seen) -> at.Where:
    stop_before = seen.before.stop if seen.before else USER
    return at.at_stop(seen.turn.streaming, seen.turns, stop_before)


def _api_time(seen: Sequence[Seen]) -> ApiTime | None:
    timed = [s.turn for s in seen if s.turn.api_s]
    if not timed:
        return None
    terms = np.array([ApiTime.terms(t.output_tokens, t.prompt_tokens) for t in timed])
    seconds = np.array([t.api_s for t in timed])
    weights = np.linalg.lstsq(terms, np.log(seconds), rcond=None)[0]
    rounded = [float(f"{weight:.6g}") for weight in weights]
    rest = zip(timed, np.log(seconds) - terms @ rounded, strict=True)
    return ApiTime(
        (rounded[0], rounded[1], rounded[2], rounded[3], rounded[4]),
        fit_tables(at.REST, (((t.streaming, t.output_tokens), float(value)) for t, value in rest)),
        short(float(seconds.min())), short(float(seconds.max())),
    )  # fmt: skip


def _ttft(seen: Sequence[Seen]) -> Tables:
    turns = [(s.turn.ttft_s, s.turn.api_s) for s in seen]
    return fit_tables(at.API_S, (((api,), min(ttft, api)) for ttft, api in turns if ttft is not None and api))


def _tool_s(later: Sequence[Seen]) -> Tables:
    """Only where both ends are known: else the gap holds more than the tool's time."""
    times = [(s.edit, s.turn.api_s, s.tool_s) for s in later]
    return fit_tables(
        at.TOOL, (((edit, api), tool) for edit, api, tool in times if tool is not None and api is not None)
    )


def _spreads(later: Sequence[Seen], stops: Shares, edits: Shares, drops: Shares) -> dict[str, float]:
    """How much sessions differ in some shares, beyond what the tables explain."""
    whole = [s for s in later if s.edit is Edit.EXTENDS]
    inner = [s for s in later if not s.is_last]
    end = STOPS.index(USER)
    return {
        **{
            edit.name.lower(): _spread((s.agent, s.edit is edit, edits.of(*at_edit(s))[edit]) for s in later)
            for edit in list(Edit)[1:]
        },
        DROPS: _spread((s.agent, not s.grows, drops.of(s.previous.output_tokens)[1]) for s in whole),
        USER: _spread((s.agent, _stop(s) == end, stops.of(*_at_stop(s))[end]) for s in inner),
    }


def _spread(turns: Iterable[tuple[tuple[int, int], bool, float]]) -> float:
    """Variance of a factor on the share, one factor an agent: what its counts vary more than by chance.

    `turns` are the agent, whether it came, and how likely that was.
    """
    counts: dict[tuple[int, int], int] = defaultdict(int)
    expected: dict[tuple[int, int], float] = defaultdict(float)
    for agent, came, share in turns:
        counts[agent] += came
        expected[agent] += share
    due = np.array(list(expected.values()))
    excess = (np.array([counts[agent] for agent in expected]) - due) ** 2 - due
    variance = excess.sum() / (due**2).sum() if due.any() else 0.0
    return short(float(np.clip(variance, 0.0, _MOST_SPREAD)))
