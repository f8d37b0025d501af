"""500 synthetic sessions beside the real ones that they were fitted to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from statistics import mean

import numpy as np
import pytest

from flashstate.traces.read import read_sessions
from flashstate.traces.session import Session
from flashstate.traces.stats.collect import Collector
from flashstate.traces.stats.tables import distributions, edits, sizes
from flashstate.traces.synth.fit import fit
from flashstate.traces.synth.generate import generate
from flashstate.traces.synth.params import claude_code
from tests.traces.made import shared_traces

SESSIONS, SEED = 500, 0
MEDIAN, P90 = 0.15, 0.3
"""How far a figure may be off, as a part of the real one."""
WIDER = {
    # Of 12 real sessions with sub-agents, a half has 2 and a half has 3 or more: the median is 2.5.
    ("sub-agents per trace that has any", "median"): 0.2,
}
CLOSE_TO_ZERO_S = {"gap minus own api_time, tool-result": 0.3}
"""Where a difference of times has its median near 0: how far that may be off, in seconds."""


def real() -> Iterator[Session]:
    return (session for session in read_sessions(shared_traces("dev")) if session.primary)


class Shape:
    """Prompts of the main agent by the number of the turn."""

    def __init__(self) -> None:
        self.prompts: defaultdict[int, list[int]] = defaultdict(list)

    def watch(self, sessions: Iterable[Session]) -> Iterator[Session]:
        for session in sessions:
            for number, turn in enumerate(session.main.turns, start=1):
                self.prompts[number].append(turn.prompt_tokens)
            yield session


@cache
def both() -> tuple[tuple[Collector, Shape], tuple[Collector, Shape]]:
    def collect(sessions: Iterable[Session]) -> tuple[Collector, Shape]:
        shape = Shape()
        return Collector().add_all(shape.watch(sessions)), shape

    return collect(real()), collect(generate(claude_code(), SESSIONS, SEED))


def figures(name: str) -> tuple[dict[str, float], dict[str, float]]:
    recorded, drawn = (
        {figure: of.value for figure, of in distributions(collected)[name].items() if of.value is not None}
        for collected, _ in both()
    )
    return recorded, drawn


@pytest.mark.parametrize("name", list(distributions(Collector())))
def test_every_distribution_is_close(name: str) -> None:
    recorded, drawn = figures(name)
    for figure, allowed in (("median", MEDIAN), ("p90", P90)):
        share = WIDER.get((name, figure), allowed)
        allowed_s = CLOSE_TO_ZERO_S.get(name, 0.0)
        assert drawn[figure] == pytest.approx(recorded[figure], rel=share, abs=allowed_s), figure


def test_the_mass_of_long_gaps_is_close() -> None:
    """The simulator caps gaps at 300 s: what counts is how many there are."""
    shares = [
        float(np.mean(np.asarray(collected.series["gap t[i]-t[i-1]-api_time[i-1]"]) > 300))
        for collected, _ in both()
    ]
    assert shares[1] == pytest.approx(shares[0], abs=0.01)


def test_a_prefix_cache_finds_as_much() -> None:
    for name in ("block hit vs previous request", "block hit vs all earlier requests of the trace"):
        recorded, drawn = (sizes(collected)[name].value for collected, _ in both())
        assert recorded is not None and drawn == pytest.approx(recorded, abs=0.01)


def shares_of_edits(collected: Collector) -> dict[str, float]:
    """Of all later requests."""
    column, later = edits(collected), collected.counts["later requests"]
    counts = {name: figure.value or 0.0 for name, figure in column.items()}
    deep = sum(counts[name] for name in ("cut back by 257-1024 blocks", "cut back by >1024 blocks"))
    return {
        "edits": counts["edits"] / later,
        "cut 1": counts["cut back by 1 block"] / later,
        "cut 2-4": counts["cut back by 2-4 blocks"] / later,
        "deep": deep / later,
        "as long as before": counts["prompt after the edit is about same (90-110%)"] / later,
        "shorter": counts["prompt after the edit is shorter"] / later,
        "longer": counts["prompt after the edit is longer"] / later,
        "back to an older request": counts["edits whose prefix reaches further in an older request"] / later,
        "drops output": collected.counts["extends but input < previous input + output"] / later,
    }


def test_edits_come_as_often() -> None:
    recorded, drawn = (shares_of_edits(collected) for collected, _ in both())
    assert drawn == {name: pytest.approx(share, rel=0.3, abs=0.0005) for name, share in recorded.items()}
    assert drawn["edits"] == pytest.approx(recorded["edits"], rel=0.1)


@pytest.mark.parametrize("turn", [1, 10, 30, 100])
def test_sessions_have_the_same_shape(turn: int) -> None:
    recorded, drawn = (mean(shape.prompts[turn]) for _, shape in both())
    assert drawn == pytest.approx(recorded, rel=0.12)
    alive = [len(shape.prompts[turn]) / len(shape.prompts[1]) for _, shape in both()]
    assert alive[1] == pytest.approx(alive[0], abs=0.05)


@pytest.mark.slow  # reads all traces again; test_fit.py fits sessions that were drawn
def test_the_parameters_are_what_the_fit_makes_of_the_real_traces() -> None:
    params = claude_code()
    assert fit(real(), params.source) == params
