"""Which figures stand in which table, under which name, and how each follows from what was collected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from flashstate.traces.stats.collect import CUTS_BLOCKS, Collector
from flashstate.traces.stats.figures import Figure, number, part_of, percentile, ratio, share, spread

Column = Mapping[str, Figure]
"""The figures of one set of sessions, by name."""

REFERENCE: Final[Mapping[str, str]] = {
    "traces": "393",
    "requests": "98,827",
    "mean prompt": "218,922",
    "median prompt": "142,016",
    "median output": "444",
    "later requests that start with the previous prompt": "84.6%",
}
"""As published for the set of traces that the method was first measured on."""

_SPREADS: Final = (
    "prompt tokens", "output tokens", "first prompt of a trace", "last prompt of a trace",
    "prompt tokens not in the previous prompt", "think_time, as recorded",
    "think_time before a tool-result request", "think_time before a user-text request",
    "gap t[i]-t[i-1]-api_time[i-1]", "gap, tool-result requests", "gap, user-text requests",
    "gap minus own api_time, tool-result", "api_time", "ttft (streams only)", "requests per trace",
    "requests per sub-agent", "sub-agents per trace that has any", "unique blocks per trace", "trace duration",
)  # fmt: skip
_ODDITIES: Final = (
    "api_time_absent", "input_tokens!=64*len(hash_ids)", "model_switch_within_agent", "output_tokens==0",
    "output_types_empty", "overlap_prev_request_by_<=1s", "overlap_prev_request_by_>1s", "prev_has_no_api_time",
    "stop_empty", "t_decreases_within_agent", "t_equal_within_agent", "think_time>dt(prev has no api_time)",
    "think_time_absent", "think_time_counts_from_last_request_with_api_time", "think_time_negative",
    "think_time_off_from_t_by_>1s(prev has api_time)", "think_time_zero", "zero_blocks_kept",
    "zero_blocks_kept_with_model_switch", "extends but input < previous input + output",
)  # fmt: skip


def comparison(c: Collector) -> Column:
    """What tells sets apart at a glance. A prompt starts with another if it has all of its full blocks."""
    counts = c.counts
    prompts, full = spread(c.series["prompt tokens"]), spread(c.series["prompt tokens in full blocks"])
    later = counts["later requests"]
    return {
        "traces": number(counts["traces"]),
        "requests": number(counts["requests"]),
        "mean prompt": prompts["mean"],
        "median prompt": prompts["median"],
        "mean prompt, full blocks only": full["mean"],
        "median prompt, full blocks only": full["median"],
        "median output": spread(c.series["output tokens"])["median"],
        "later requests": number(later),
        "later requests that start with the previous prompt": share(counts["extends"], later),
        "same, main agents only": share(counts["extends, main"], counts["later requests, main"]),
        "same, allowing a changed last block": share(counts["extends but for the last block"], later),
    }


def sizes(c: Collector) -> Column:
    """How much there is."""
    counts = c.counts
    return {
        "requests_main": number(counts["requests_main"]),
        "requests_subagent": number(counts["requests"] - counts["requests_main"]),
        "traces_with_subagents": number(counts["traces_with_subagents"]),
        "subagents": number(counts["subagents"]),
        "exact_duplicate_traces": number(counts["exact_duplicate_traces"]),
        "primary traces": number(counts["primary traces"]),
        "prompt_tokens_total": number(sum(c.series["prompt tokens"])),
        "output_tokens_total": number(sum(c.series["output tokens"])),
        "block hit vs previous request": share(counts["blocks in the previous request"], counts["blocks"]),
        "block hit vs all earlier requests of the trace": share(
            counts["blocks in any earlier request"], counts["blocks"]
        ),
    }


def distributions(c: Collector) -> Mapping[str, Column]:
    """Each quantity's spread: lengths in tokens, times in seconds."""
    return {name: spread(c.series[name]) for name in _SPREADS}


def edits(c: Collector) -> Column:
    """Later requests that do not start with the whole previous prompt."""
    counts, all_edits = c.counts, c.counts["edits"]
    tokens, shares = c.series["cut tokens"], c.series["cut as a share of the previous prompt"]
    cuts = {"p25": 25, "median": 50, "p75": 75, "p90": 90, "p95": 95, "max": 100}
    return {
        "edits": number(all_edits),
        "share of later requests": share(all_edits, counts["later requests"]),
        **{
            f"cut back by {name}": part_of(counts[f"cut class {place}"], all_edits)
            for place, name in enumerate(_cut_names())
        },
        **{f"cut tokens {name}": number(percentile(tokens, at)) for name, at in cuts.items()},
        **{
            f"cut as a share of the previous prompt, {name}": ratio(percentile(shares, cuts[name]))
            for name in ("median", "p75", "p90")
        },
        "divergence point: zero blocks kept": number(counts["divergence: zero blocks kept"]),
        "divergence point: inside tool+system prefix": number(counts["divergence: inside"]),
        "divergence point: at the end of tool+system (-1..+16 blocks)": number(
            counts["divergence: at the end"]
        ),
        "divergence point: in conversation": number(counts["divergence: in conversation"]),
        "prompt after the edit is shorter": number(counts["after: shorter"]),
        "prompt after the edit is about same (90-110%)": number(counts["after: same"]),
        "prompt after the edit is longer": number(counts["after: longer"]),
        "edits whose prefix reaches further in an older request": number(
            counts["edits whose prefix reaches further in an older request"]
        ),
        "traces with no edit": number(counts["traces with no edit"]),
    }


def _cut_names() -> list[str]:
    lows = [1, *(most + 1 for most in CUTS_BLOCKS)]
    pairs = zip(lows, CUTS_BLOCKS, strict=False)
    names = [f"{low} block" if low == high else f"{low}-{high} blocks" for low, high in pairs]
    return [*names, f">{CUTS_BLOCKS[-1]} blocks"]


def oddities(c: Collector) -> Column:
    """What a reader of the traces may stumble over."""
    found = c.counts | {"zero_blocks_kept": c.counts["divergence: zero blocks kept"]}
    return {name: number(found.get(name, 0)) for name in _ODDITIES}


def composition(c: Collector) -> Column:
    """Which models, types, stop reasons and sub-agents, most frequent first."""
    return {
        f"{group}: {name or '(empty)'}": number(count)
        for group, kinds in sorted(c.kinds.items())
        for name, count in kinds.most_common()
    }


TABLES: Final = {
    "Comparison": comparison,
    "Sizes": sizes,
    "Context edits": edits,
    "Oddities": oddities,
    "Composition": composition,
}
"""The tables with one column a set; `distributions` has one line a quantity and set."""
