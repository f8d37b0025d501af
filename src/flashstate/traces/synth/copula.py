"""Draws growth, output, server time and gap so that they go together as recorded: see `correlate`."""

from __future__ import annotations

from random import Random
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flashstate.traces.synth.names import PAIRS, QUANTITIES
from flashstate.traces.synth.params import Params

Levels = tuple[float, ...]
"""One for each of QUANTITIES: from 0 to 1 for a turn, on the normal scale for a session."""

_NORMAL: Final = NormalDist()
_STEPS: Final = 200
_LEAST_EIGENVALUE: Final = 1e-6


class Copula:
    """The correlations of some parameters."""

    def __init__(self, params: Params) -> None:
        correlation = params.correlation
        within = _matrix(correlation.within)
        lengths = np.array(correlation.with_turns)
        between = np.block(
            [[np.ones((1, 1)), lengths[None]], [lengths[:, None], _matrix(correlation.between)]]
        )
        self._between, self._within = _root(between).tolist(), _root(within).tolist()
        self._parts = [(part**0.5, (1 - part) ** 0.5) for part in correlation.session_part]
        # Long sessions have more turns: moved so that the mean over turns, not over sessions, is 0.
        self._means = (_mean_turns_level(params) * lengths).tolist()

    def session(self, draw: Random, turns_level: float) -> Levels:
        """A session's own levels, given the level (0 to 1) of its number of turns."""
        free = [_NORMAL.inv_cdf(turns_level), *(draw.gauss() for _ in QUANTITIES)]
        levels = _times(self._between, free)[1:]
        return tuple(level - mean for level, mean in zip(levels, self._means, strict=True))

    def turn(self, draw: Random, session: Levels) -> Levels:
        """A turn's levels in a session."""
        own = _times(self._within, [draw.gauss() for _ in QUANTITIES])
        return tuple(
            _NORMAL.cdf(between * level + within * here)
            for (between, within), level, here in zip(self._parts, session, own, strict=True)
        )


def _times(root: list[list[float]], values: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, values, strict=True)) for row in root]


def _matrix(pairs: tuple[float, ...]) -> NDArray[np.float64]:
    matrix = np.eye(len(QUANTITIES))
    for (i, j), value in zip(PAIRS, pairs, strict=True):
        matrix[i, j] = matrix[j, i] = value
    return matrix


def _root(correlation: NDArray[np.float64]) -> NDArray[np.float64]:
    """A triangular root of the nearest matrix that is a correlation: estimates need not make one."""
    values, vectors = np.linalg.eigh(correlation)
    near = (vectors * np.maximum(values, _LEAST_EIGENVALUE)) @ vectors.T
    scale = np.sqrt(np.diag(near))
    root: NDArray[np.float64] = np.linalg.cholesky(near / np.outer(scale, scale))
    return root


def _mean_turns_level(params: Params) -> float:
    """The mean over turns of their session's level of turns, on the normal scale."""
    steps = [(i + 0.5) / _STEPS for i in range(_STEPS)]
    weights = [
        (start.share * start.turns.at(step), _NORMAL.inv_cdf(step))
        for start in params.starts
        for step in steps
    ]
    return sum(turns * level for turns, level in weights) / sum(turns for turns, _ in weights)
