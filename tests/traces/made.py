"""Sessions made for tests, and where the real ones are."""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from flashstate.traces.blocks import common_blocks
from flashstate.traces.session import BLOCK_TOKENS, MAIN_AGENT, About, Agent, Session, Turn

SMALL = Path(__file__).with_name("small.json")
"""A Weka JSON file with sub-agents, a context edit, a missing api_time and an output of 0 tokens."""


def shared_traces(name: str) -> Path:
    """A shared trace file or folder: $FLASHSTATE_SHARED, or a folder `shared` beside the checkout."""
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    path = Path(os.environ.get("FLASHSTATE_SHARED", beside)) / "traces" / name
    if not path.exists():
        pytest.skip(f"NOT TESTED ON REAL TRACES: no {path}; set FLASHSTATE_SHARED to the shared folder")
    return path


def make_turns(prompts: Sequence[Sequence[int]], **fields: Any) -> tuple[Turn, ...]:
    """Turns with these block ids, a full block each, ten seconds apart."""
    turns: list[Turn] = []
    before: array[int] = array("q")
    for number, ids in enumerate(prompts):
        blocks = array("q", ids)
        shared = common_blocks(before, blocks)
        values: dict[str, Any] = {
            "time_s": 10.0 * number, "gap_s": 10.0 if number else 0.0, "prompt_tokens": len(ids) * BLOCK_TOKENS,
            "output_tokens": 5,
        } | fields  # fmt: skip
        turns.append(Turn(**values, shared_blocks=shared, new_blocks=blocks[shared:]))
        before = blocks
    return tuple(turns)


def make_session(
    name: str = "s", prompts: Sequence[Sequence[int]] = ((1, 2), (1, 2, 3)), **fields: Any
) -> Session:
    """A session of one agent."""
    return Session(name, Agent(MAIN_AGENT, None, make_turns(prompts, **fields)), ())


def _hundredths(most: int) -> st.SearchStrategy[float | None]:
    return st.none() | st.integers(0, most * 100).map(lambda value: value / 100)


_abouts = st.builds(
    About,
    kind=st.sampled_from(["", "Explore", "Plan"]),
    status=st.sampled_from(["", "completed", "async_launched"]),
    duration_ms=st.none() | st.integers(0, 10**6).map(float),
    total_tokens=st.none() | st.integers(0, 10**6),
    tool_uses=st.none() | st.integers(0, 50),
    models=st.lists(st.sampled_from(["small", "large"]), min_size=1, unique=True).map(tuple),
    tool_tokens=st.integers(0, 1000),
    system_tokens=st.integers(0, 1000),
)


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    """A session whose turns go on from, cut back, or replace what was there, as block ids tell."""
    fresh = iter(range(10_000))

    def agent(
        name: str, start_s: float, idle_since: float | None, prefix: list[int], spawn: int | None
    ) -> Agent:
        turns: list[Turn] = []
        prompts: list[list[int]] = []
        t = 0.0
        for _ in range(draw(st.integers(1, 6))):
            if not turns:
                kept = prefix
            elif draw(st.booleans()):
                kept = prompts[-1]
            else:
                before = draw(st.sampled_from(prompts))
                kept = before[: draw(st.integers(0, len(before)))]
            blocks = kept + list(islice(fresh, draw(st.integers(0 if kept else 1, 5))))
            shared = common_blocks(array("q", prompts[-1] if prompts else []), array("q", blocks))
            time_s = start_s + t
            turns.append(
                Turn(
                    time_s,
                    0.0 if idle_since is None else max(0.0, time_s - idle_since),
                    prompt_tokens=len(blocks) * BLOCK_TOKENS + draw(st.integers(0, BLOCK_TOKENS - 1)),
                    output_tokens=draw(st.integers(0, 200)),
                    shared_blocks=shared,
                    new_blocks=array("q", blocks[shared:]),
                    api_s=draw(_hundredths(30)),
                    think_s=draw(_hundredths(100)),
                    ttft_s=draw(_hundredths(3)),
                    stop=draw(st.sampled_from(["", "tool_use", "end_turn"])),
                    model=draw(st.sampled_from(["small", "large"])),
                    streaming=draw(st.booleans()),
                    input_types=draw(st.sampled_from([(), ("text",), ("text", "tool_result")])),
                    output_types=draw(st.sampled_from([(), ("text", "tool_use")])),
                )
            )
            prompts.append(blocks)
            idle_since = turns[-1].end_s
            t = round(t + (turns[-1].api_s or 0.0) + draw(st.integers(0, 1000)), 3)
        about = draw(_abouts)
        if name == MAIN_AGENT:
            about = About(
                models=about.models, tool_tokens=about.tool_tokens, system_tokens=about.system_tokens
            )
        return Agent(name, spawn, tuple(turns), about)

    main = agent(MAIN_AGENT, 0.0, None, [], None)
    shared = list(islice(fresh, draw(st.integers(0, 3))))
    subs: list[Agent] = []
    for number in range(draw(st.integers(0, 2))):
        spawn = draw(st.integers(subs[-1].spawn_turn or 0 if subs else 0, len(main.turns) - 1))
        end_s = main.turns[spawn].end_s
        start_s = round(end_s + draw(st.integers(0, 2000)) / 1000, 3)
        subs.append(agent(f"agent_{number:03d}", start_s, end_s, shared, spawn))
    return Session("s", main, tuple(subs), draw(st.booleans()), "g", draw(st.sampled_from(["", "r"])))
