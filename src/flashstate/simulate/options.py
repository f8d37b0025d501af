"""What a user asked `flashstate simulate` to do, checked."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from flashstate.console import whole_number
from flashstate.core.cost import PrefillCostModel
from flashstate.cost_file import CostFileError, read_prefill_cost
from flashstate.simulate.engine_clock import Serving
from flashstate.simulate.presets import CacheGeometry, from_config, preset, preset_names
from flashstate.simulate.result import RunKey
from flashstate.simulate.rules import GAPS, Gaps, Rules
from flashstate.simulate.setup import CLOCKS, ENGINE, RECORDED
from flashstate.simulate.systems import System, chosen
from flashstate.simulate.timing import TimeModel
from flashstate.simulate.waiting import FirstCome, order_names
from flashstate.simulate.workload import AGENTS, Agents

_MOST_SESSIONS: Final = 10_000
_MOST_SEEDS: Final = 1000
_MOST_MINUTES: Final = 10_080
"""A week. Every request of a run is in memory."""


class OptionError(ValueError):
    """An option that makes no sense. One line: the value, the limit, the way out."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command's options as given; what they mean is in the methods, which raise OptionError or GeometryError."""

    traces: tuple[Path, ...]
    policy: str
    sessions: str
    seeds: int
    geometry: str
    clock: str
    gaps: str
    agents: str
    out: Path | None
    jobs: int | None
    minutes: float
    warmup: float
    gap_cap_s: float
    memory_gib: float | None
    tp: int | None
    blocks: int | None
    cost: tuple[float, float] | None
    prefill_cost: Path | None
    all_sessions: bool
    skip_bad: bool
    order: str | None
    guard: float | None
    timing: Path | None

    def systems(self) -> dict[str, System]:
        """The systems to run, by name."""
        names = _parts("--policy", self.policy)
        try:
            found = {system.name: system for system in chosen(names)}
        except ValueError as error:
            raise OptionError(f"--policy: {error}") from None
        if self.clock == RECORDED:
            return found
        # What comes when then depends on the policy: there is no future to know.
        playable = {name: system for name, system in found.items() if not system.needs_a_schedule}
        if not playable:
            raise OptionError(
                f"--policy {', '.join(names)}: needs a schedule known beforehand, which only --clock {RECORDED} has"
            )
        return playable

    def serving(self) -> Serving:
        """How the engine serves, by its clock."""
        given = {"--order": self.order, "--guard": self.guard, "--timing": self.timing}
        named = [option for option, value in given.items() if value is not None]
        if self.clock == RECORDED and named:
            raise OptionError(f"{', '.join(named)}: only with --clock {ENGINE}")
        order = FirstCome.name if self.order is None else self.order
        _one_of("--order", order, order_names())
        try:
            timing = None if self.timing is None else TimeModel.from_file(self.timing)
            return Serving(timing, order, self.guard)
        except ValueError as error:
            raise OptionError(str(error)) from None

    def loads(self) -> list[int]:
        """Numbers of concurrent sessions, each once."""
        loads = []
        for part in _parts("--sessions", self.sessions):
            load = whole_number(part)
            if load is None or not 1 <= load <= _MOST_SESSIONS:
                raise OptionError(
                    f"--sessions {part[:40]}: must be numbers from 1 to {_MOST_SESSIONS}, with commas"
                )
            loads.append(load)
        return list(dict.fromkeys(loads))

    def keys(self, geometry: CacheGeometry) -> list[RunKey]:
        """Every run asked for. Whole seeds first: what an interrupt leaves can be compared."""
        if not 1 <= self.seeds <= _MOST_SEEDS:
            raise OptionError(f"--seeds {self.seeds}: how many, from 1 to {_MOST_SEEDS}")
        return [
            RunKey(policy, sessions, seed, self.clock, geometry.name)
            for seed in range(self.seeds)
            for sessions in self.loads()
            for policy in self.systems()
        ]

    def rules(self) -> Rules:
        """How sessions are played. The number of sessions and the seed are those of a run."""
        _one_of("--clock", self.clock, CLOCKS)
        _one_of("--gaps", self.gaps, GAPS)
        if not 0 < self.minutes <= _MOST_MINUTES:
            raise OptionError(f"--minutes {self.minutes:g}: must be above 0, and {_MOST_MINUTES} at most")
        if not 0 <= self.warmup < self.minutes:
            raise OptionError(
                f"--warmup {self.warmup:g}: must be 0 or more, and below --minutes {self.minutes:g}"
            )
        if not self.gap_cap_s >= 0:
            raise OptionError(f"--gap-cap {self.gap_cap_s:g}: must be 0 or more")
        return Rules(
            sessions=1,
            duration_s=self.minutes * 60,
            warmup_s=self.warmup * 60,
            gap_cap_s=self.gap_cap_s,
            gaps=cast(Gaps, self.gaps),
        )

    def which_agents(self) -> Agents:
        """Whether sub-agents are played too."""
        _one_of("--agents", self.agents, AGENTS)
        return cast(Agents, self.agents)

    def cache_geometry(self) -> CacheGeometry:
        """The cache, with what --blocks, --cost and --prefill-cost change of it."""
        path = Path(self.geometry)
        if self.geometry in preset_names() or not path.exists():
            found = preset(self.geometry)
            if self.memory_gib is not None or self.tp is not None:
                raise OptionError(
                    "--memory and --tp: only with a config.json as --geometry; --blocks works with all"
                )
        elif self.memory_gib is None:
            raise OptionError(f"--geometry {path}: needs --memory GIB, the cache on each GPU")
        else:
            found = from_config(path, self.memory_gib, 1 if self.tp is None else self.tp)
        if self.blocks is not None:
            found = found.with_blocks(self.blocks)
        cost = self._cost()
        return found if cost is None else found.with_cost(cost)

    def _cost(self) -> PrefillCostModel | None:
        if self.prefill_cost is not None:
            return self._fitted_cost(self.prefill_cost)
        if self.cost is None:
            return None
        try:
            return PrefillCostModel(*self.cost)
        except ValueError:
            d, e = self.cost
            raise OptionError(
                f"--cost {d:g} {e:g}: both must be finite and 0 or more, and one above 0"
            ) from None

    def _fitted_cost(self, file: Path) -> PrefillCostModel:
        if self.cost is not None:
            raise OptionError(f"--prefill-cost {file} and --cost: give one or the other")
        if self.timing is not None:
            raise OptionError(
                f"--prefill-cost {file} and --timing {self.timing}: the clock would use the latter's D and E; "
                "put the fitted ones there as `prefill`, and use --cost D E"
            )
        try:
            return read_prefill_cost(file)
        except CostFileError as error:
            raise OptionError(f"--prefill-cost {error}") from None

    def processes(self) -> int:
        """Runs at a time."""
        jobs = len(os.sched_getaffinity(0)) if self.jobs is None else self.jobs
        if jobs < 1:
            raise OptionError(f"--jobs {jobs}: must be 1 or more")
        return jobs


def _parts(option: str, text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise OptionError(f"{option}: names nothing")
    return parts


def _one_of(option: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise OptionError(f"{option} {value}: must be one of {', '.join(known)}")
