"""What others have published of the same systems, to stand beside ours. None of it was measured by us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from flashstate.report.simulation import HIT_RATE, MISSED, OURS, SERVED, Mean, Simulation, share, tokens

GEOMETRY: Final = "glm-5.3-flash"
BLOCKS: Final = 2531
SESSIONS: Final = 48

HIT_RATES: Final[Mapping[str, Mapping[int, float]]] = {
    "vllm-dense": {32: 0.611, 48: 0.275},
    "dense-1088": {32: 0.012, 48: 0.002},
    "asc-lru": {32: 0.528, 48: 0.215},
    "asc-unit-lru": {32: 0.731, 48: 0.599},
    "gds": {32: 0.760, 48: 0.599},
}
"""The article's own simulator, two seeds, on another trace of the same family: expect the order, not the levels."""

DEPENDENCY: Final[Mapping[str, float]] = {
    "vllm-dense": 5702,
    "dense-1088": 10171,
    "asc-lru": 4088,
    "asc-unit-lru": 8595,
    "gds": 2483,
}
"""The same simulator, tokens a request missed for a lost checkpoint, at 48 sessions."""

RATIOS: Final[Mapping[str, float]] = {"Prompt throughput": 3.14, "Output throughput": 3.02, "TTFT p90": 0.116}
"""The paper, measured on two B200s: FlashState over its vLLM (`vllm-dense` here), at 48 sessions, at best."""

_BASELINES: Final = ("vllm-dense", "vllm-sparse")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A table of ours beside what is published: column titles, then rows that start with a name."""

    title: str
    source: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def comparisons(simulation: Simulation) -> list[Comparison]:
    """Those that this simulation has a part in: of the same geometry and loads."""
    if simulation.geometry != GEOMETRY or simulation.blocks != BLOCKS:
        return []
    return [found for found in (_hit_rates(simulation), _ratios(simulation)) if found is not None]


def _hit_rates(simulation: Simulation) -> Comparison | None:
    loads = [n for n in (32, 48) if n in simulation.loads]
    rows = []
    for policy, published in HIT_RATES.items():
        cells = [policy]
        for n in loads:
            mean = simulation.mean(HIT_RATE, policy, n)
            cells += ["-" if mean is None else share(mean.value), share(published[n])]
        missed = simulation.mean(MISSED[2], policy, SESSIONS)
        if SESSIONS in loads:
            cells += ["-" if missed is None else tokens(missed.value), tokens(DEPENDENCY[policy])]
        if policy in simulation.policies:
            rows.append(tuple(cells))
    if not loads or not rows:
        return None
    columns = [f"{whose} at {n}" for n in loads for whose in ("hit rate", "published")]
    if SESSIONS in loads:
        columns += ["dependency misses", "published"]
    source = (
        "Published: the article's own simulator, two seeds, on another trace of the same family. "
        "Expect its order, not its levels. Dependency misses in tokens a request at 48 sessions."
    )
    return Comparison("Beside the article's simulation", source, tuple(columns), tuple(rows))


def _ratios(simulation: Simulation) -> Comparison | None:
    columns, ratios = [], []
    for baseline in _BASELINES:
        found = {
            figure.name: _ratio(
                simulation.mean(figure, OURS, SESSIONS), simulation.mean(figure, baseline, SESSIONS)
            )
            for figure in SERVED
        }
        if any(value is not None for value in found.values()):
            columns.append(f"{OURS} / {baseline}")
            ratios.append(found)
    if not columns:
        return None
    rows = [
        (name, *("-" if r[name] is None else f"{r[name]:.2f}x" for r in ratios), f"{paper:.2f}x")
        for name, paper in RATIOS.items()
    ]
    source = (
        "Published: the paper's FlashState over its vLLM, measured on two B200s at 48 sessions, at best. "
        "Ours: a model of such an engine's time."
    )
    return Comparison("Beside the paper, at 48 sessions", source, (*columns, "published"), tuple(rows))


def _ratio(ours: Mean | None, theirs: Mean | None) -> float | None:
    return None if ours is None or theirs is None or not theirs.value else ours.value / theirs.value
