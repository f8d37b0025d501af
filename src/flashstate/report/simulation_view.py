"""The tables of a simulation, for the terminal and for the page alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from flashstate.report.figures import NONE
from flashstate.report.simulation import (
    BOUND,
    BOUNDS,
    CHECKPOINTS,
    EVICTIONS,
    HIT_RATE,
    MISSED,
    OCCUPANCY,
    REDUNDANT,
    SERVED,
    UNCACHED,
    Figure,
    Mean,
    Simulation,
    share,
)

PAST: Final = "▲"
PARTIAL: Final = "*"

_DETAILS: Final = {
    "placement": MISSED[0],
    "capacity": MISSED[1],
    "dependency": MISSED[2],
    "uncached": UNCACHED,
    "in use": OCCUPANCY,
    "states": CHECKPOINTS,
    "evicted": EVICTIONS,
}
"""Column by column."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure: its mean, how far seeds are from it, and whether it is the best of its column."""

    text: str
    spread: str = ""
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A policy's figures, or the workload's own (then `is_policy` is False)."""

    name: str
    cells: tuple[Cell, ...]
    is_policy: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Policies by load, or by figure. `cliff`: the first column past the cliff, counted from 0."""

    title: str
    hint: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    cliff: int | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether its cells have nothing beside their figure."""
        return not any(cell.spread for row in self.rows for cell in row.cells)


def tables(simulation: Simulation) -> Iterator[Table]:
    """Hit rate, redundant prefill, distance to the bound, what only the engine clock knows, misses by reason."""
    hits = _by_load(simulation, HIT_RATE)
    yield Table(hits.title, hits.hint, hits.columns, hits.rows + _of_the_workload(simulation), hits.cliff)
    yield _by_load(simulation, REDUNDANT)
    if BOUND in simulation.policies and len(simulation.policies) > 1:
        yield _to_bound(simulation)
    for figure in SERVED:
        if simulation.has(figure):
            yield _by_load(simulation, figure)
    yield _details(simulation)


def notes(simulation: Simulation) -> list[str]:
    """What the signs in the tables mean."""
    found = []
    if simulation.seeds > 1:
        found.append(f"Mean of {simulation.seeds} seeds, ± half the range.")
    if simulation.cliff is not None:
        found.append(
            f"{PAST} the working set is larger than the cache: from about {simulation.cliff:.0f} sessions on."
        )
    if any(simulation.is_partial(policy, n) for policy in simulation.policies for n in simulation.loads):
        found.append(f"{PARTIAL} fewer seeds than others: not the same work.")
    return found


def telling_load(simulation: Simulation) -> int:
    """Where policies differ: the first load past the cliff, or the heaviest."""
    past = [n for n in simulation.loads if simulation.is_past_cliff(n)]
    return past[0] if past else simulation.loads[-1]


def _by_load(simulation: Simulation, figure: Figure) -> Table:
    def cell(policy: str, sessions: int) -> Cell:
        mean = simulation.mean(figure, policy, sessions)
        if mean is None:
            return Cell(NONE)
        partial = PARTIAL if simulation.is_partial(policy, sessions) else ""
        spread = f"±{re.sub('^0[.]', '.', figure.show(mean.spread))}" if mean.seeds > 1 else ""
        return Cell(figure.show(mean.value) + partial, spread, policy == simulation.best(figure, sessions))

    return _grid(simulation, figure.name, figure.hint, cell, list(simulation.policies))


def _to_bound(simulation: Simulation) -> Table:
    def cell(policy: str, sessions: int) -> Cell:
        below = simulation.below_bound(policy, sessions)
        return Cell(NONE if below is None else share(below))

    policies = [policy for policy in simulation.policies if policy not in BOUNDS]
    hint = "hit rate, the clairvoyant's less the policy's, on the same schedules"
    return _grid(simulation, "Below the bound", hint, cell, policies)


def _grid(
    simulation: Simulation, title: str, hint: str, cell: Callable[[str, int], Cell], policies: Sequence[str]
) -> Table:
    loads = simulation.loads
    past = [number for number, n in enumerate(loads) if simulation.is_past_cliff(n)]
    columns = tuple(f"{n}{PAST}" if simulation.is_past_cliff(n) else str(n) for n in loads)
    rows = tuple(Row(policy, tuple(cell(policy, n) for n in loads)) for policy in policies)
    return Table(title, hint, columns, rows, past[0] if past else None)


def _of_the_workload(simulation: Simulation) -> tuple[Row, ...]:
    found = []
    for label, of in (("(ideal)", simulation.ideal), ("(working set)", simulation.working_set)):
        found.append(Row(label, tuple(_plain(of(n), share) for n in simulation.loads), is_policy=False))
    return tuple(found)


def _details(simulation: Simulation) -> Table:
    sessions = telling_load(simulation)
    rows = tuple(
        Row(policy, tuple(_plain(simulation.mean(f, policy, sessions), f.show) for f in _DETAILS.values()))
        for policy in simulation.policies
    )
    hint = (
        "tokens missed a request (placement: no checkpoint was taken there; capacity: KV evicted; dependency: KV "
        "there, checkpoint gone); median uncached tokens; blocks in use; checkpoints kept; evictions a request"
    )
    return Table(f"At {sessions} sessions", hint, tuple(_DETAILS), rows)


def _plain(mean: Mean | None, show: Callable[[float], str]) -> Cell:
    return Cell(NONE if mean is None else show(mean.value))
