"""How growth, output, server time and gap go together, within a session and between sessions.

Each value is ranked within its cell and put on the normal scale (a Gaussian copula): what is drawn from these
correlations keeps the tables exactly.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flashstate.traces.synth.behaviour import at_gap, at_growth
from flashstate.traces.synth.circumstances import stop_index
from flashstate.traces.synth.names import PAIRS, QUANTITIES
from flashstate.traces.synth.observe import Seen
from flashstate.traces.synth.params import Behaviour, Correlation
from flashstate.traces.synth.tables import short

Turn = tuple[int, int]
"""A session and a turn of its main agent."""
Array = NDArray[np.float64]
Sample = tuple[str, Turn, float]
"""A cell, a turn and its value."""

_NORMAL: Final = NormalDist()
_MOST: Final = 0.95
_LEAST_TURNS: Final = 5
"""Of a session whose level is compared with its length."""


def fit_correlation(main: Sequence[Seen], behaviour: Behaviour) -> Correlation:
    """Of the main agents' turns. 0 where there is nothing to compare."""
    samples = (
        _growth(main, behaviour),
        _output(main, behaviour),
        _api(main, behaviour),
        _gap(main, behaviour),
    )
    scores = [_normal(of) for of in samples]
    known = [of for of in scores if of]
    by_session: dict[int, list[list[float]]] = defaultdict(list)
    for turn in scores[0]:
        if all(turn in of for of in known):
            by_session[turn[0]].append([of.get(turn, 0.0) for of in scores])
    groups = [np.array(rows) for rows in by_session.values()]
    size = len(QUANTITIES)
    if len(groups) < 2 or sum(map(len, groups)) <= len(groups):
        return Correlation((0.0,) * size, (0.0,) * size, (0.0,) * len(PAIRS), (0.0,) * len(PAIRS))
    between, within = _components(groups)
    parts = np.diag(between) / np.maximum(np.diag(between) + np.diag(within), 1e-12)
    return Correlation(
        _shorts(parts),
        _shorts(_with_turns(main, by_session, np.sqrt(np.diag(between)))),
        _shorts(_ratio(between, i, j) for i, j in PAIRS),
        _shorts(_ratio(within, i, j) for i, j in PAIRS),
    )


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Of two quantities on the normal scale; 0 where one of them does not vary."""
    first, second = (_normal(("", (i, 0), pair[k]) for i, pair in enumerate(pairs)) for k in (0, 1))
    if len({a for a, _ in pairs}) < 3 or len({b for _, b in pairs}) < 3:
        return 0.0
    a, b = (np.array([of[i, 0] for i in range(len(pairs))]) for of in (first, second))
    return short(float(np.clip(np.corrcoef(a, b)[0, 1], -_MOST, _MOST)))


def _growth(main: Sequence[Seen], behaviour: Behaviour) -> list[Sample]:
    cells = ((behaviour.growth.cell(at_growth(s))[0], s) for s in main if s.grows)
    return [(cell, _turn(s), float(s.growth)) for cell, s in cells]


def _output(main: Sequence[Seen], behaviour: Behaviour) -> list[Sample]:
    return [
        (behaviour.output.cell((stop_index(s.turn.stop),))[0], _turn(s), float(s.turn.output_tokens))
        for s in main
    ]


def _api(main: Sequence[Seen], behaviour: Behaviour) -> list[Sample]:
    api = behaviour.api
    if api is None:
        return []
    return [
        (
            api.rest.cell((s.turn.streaming, s.turn.output_tokens))[0],
            _turn(s),
            math.log(s.turn.api_s) - api.log_s(s.turn.output_tokens, s.turn.prompt_tokens),
        )
        for s in main
        if s.turn.api_s
    ]


def _gap(main: Sequence[Seen], behaviour: Behaviour) -> list[Sample]:
    samples = []
    for s in main:
        if s.before is None:
            continue
        if s.tool_s is not None and s.turn.api_s is not None:
            samples.append(("tool " + behaviour.tool_s.cell((s.edit, s.turn.api_s))[0], _turn(s), s.tool_s))
        else:
            cell = behaviour.gap_s.cell(at_gap(s))[0]
            samples.append(("gap " + cell, _turn(s), s.turn.gap_s))
    return samples


def _turn(seen: Seen) -> Turn:
    return seen.agent[0], seen.number


def _normal(samples: Iterable[Sample]) -> dict[Turn, float]:
    """Ranks within each cell, as quantiles of the normal distribution."""
    cells: dict[str, list[tuple[float, Turn]]] = defaultdict(list)
    for cell, turn, value in samples:
        cells[cell].append((value, turn))
    scores = {}
    for values in cells.values():
        for rank, (_, turn) in enumerate(sorted(values)):
            scores[turn] = _NORMAL.inv_cdf((rank + 0.5) / len(values))
    return scores


def _components(groups: Sequence[Array]) -> tuple[Array, Array]:
    """Covariances between and within sessions, by analysis of variance."""
    count = sum(map(len, groups))
    mean = np.concatenate(groups).mean(axis=0)
    inside = sum((group - group.mean(axis=0)).T @ (group - group.mean(axis=0)) for group in groups)
    across = sum(len(g) * np.outer(g.mean(axis=0) - mean, g.mean(axis=0) - mean) for g in groups)
    within: Array = np.asarray(inside) / (count - len(groups))
    typical = (count - sum(len(group) ** 2 for group in groups) / count) / (len(groups) - 1)
    between: Array = (np.asarray(across) / (len(groups) - 1) - within) / typical
    np.fill_diagonal(between, np.maximum(np.diag(between), 0.0))
    return between, within


def _with_turns(main: Sequence[Seen], by_session: Mapping[int, Sequence[list[float]]], scale: Array) -> Array:
    """Correlations of the sessions' levels with their numbers of turns."""
    turns = {s.agent[0]: s.turns for s in main}
    rows = [(turns[number], rows) for number, rows in by_session.items() if len(rows) >= _LEAST_TURNS]
    if not rows:
        return np.zeros_like(scale)
    levels = np.array([np.mean(values, axis=0) for _, values in rows])
    score = _normal(("", (i, 0), float(count)) for i, (count, _) in enumerate(rows))
    lengths = np.array([score[i, 0] for i in range(len(rows))])
    covariance = (lengths[:, None] * (levels - levels.mean(axis=0))).mean(axis=0)
    return np.where(scale > 0, covariance / np.maximum(scale, 1e-12), 0.0)


def _ratio(covariance: Array, i: int, j: int) -> float:
    scale = float(np.sqrt(covariance[i, i] * covariance[j, j]))
    return float(covariance[i, j]) / scale if scale > 0 else 0.0


def _shorts(values: Iterable[Any]) -> tuple[float, ...]:
    return tuple(short(float(np.clip(value, -_MOST, _MOST))) for value in values)
