"""The runs so far, as results for people and other tools; kept on disk as each engine finishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flashstate.bench.compare import best_setting
from flashstate.bench.engine import Engine
from flashstate.bench.machine import machine, versions
from flashstate.demo.curves import curves
from flashstate.demo.options import Options
from flashstate.demo.summary import errors_by_kind, summarise
from flashstate.replay.driver import Replay
from flashstate.replay.plan import Workload
from flashstate.replay.record import write_records
from flashstate.report.engine import EngineResult
from flashstate.report.html import write_html
from flashstate.report.results import FLASHSTATE, STOCK, STOCK_BEST, Results


@dataclass(frozen=True)
class Run:
    """One engine's replay."""

    engine: Engine
    replay: Replay
    result: EngineResult
    start_s: float  # how long its server took to start


@dataclass
class Comparison:
    """Collects runs. `date` is ISO 8601."""

    options: Options
    command: str
    date: str
    workload: Workload
    blocks: int
    engines: tuple[Engine, ...]
    runs: dict[str, Run] = field(default_factory=dict)

    def add(self, engine: Engine, replay: Replay, start_s: float) -> None:
        """Takes a run and brings the files up to date."""
        self.runs[engine.name] = Run(engine, replay, summarise(replay), start_s)
        write_records(replay.records, self.options.out / "records" / f"{engine.name}.jsonl")
        self.write()

    def write(self) -> None:
        """Writes results.json and report.html, with what there is."""
        results, shown = self.results(), self._shown()
        results.write(self.options.out / "results.json")
        plots = {
            name: curves(run.replay) for name, run in shown.items() if name != STOCK_BEST or self._differ()
        }
        write_html(self.options.out / "report.html", results, self.captions, plots)

    def results(self) -> Results:
        """The figures of stock, of the best stock setting, and of FlashState."""
        family = self.options.family
        return Results(
            command=self.command,
            date=self.date,
            machine=machine(),
            versions=versions(),
            model={"family": family.name, "architecture": _architecture(family.config), "weights": "random"},
            cache={
                "setting": self.options.cache,
                "blocks": self.blocks,
                "block_size": family.block_size,
                "checkpoint_blocks": family.checkpoint_blocks,
            },
            workload={**self.workload.description, **self._how_it_went()},
            engines={name: run.result for name, run in self._shown().items()},
        )

    @property
    def captions(self) -> Mapping[str, str]:
        """How each of the engines shown is set, and how many of its requests failed, if any."""
        captions = {name: run.engine.caption for name, run in self._shown().items()}
        if STOCK_BEST in captions and not self._differ():
            captions[STOCK_BEST] = "the default is the best"
        for name, run in self._shown().items():
            failed = sum(errors_by_kind(run.replay.measured).values())
            if failed:
                captions[name] += f", {failed} of {len(run.replay.measured)} requests failed"
        return captions

    @property
    def missing(self) -> tuple[str, ...]:
        """Engines that have not been measured."""
        return tuple(engine.name for engine in self.engines if engine.name not in self.runs)

    def _shown(self) -> dict[str, Run]:
        stock = [run for run in self.runs.values() if run.engine.mode == "observe"]
        shown = {STOCK: self.runs[STOCK]} if STOCK in self.runs else {}
        if len(stock) == sum(engine.mode == "observe" for engine in self.engines):
            shown[STOCK_BEST] = best(stock)
        if FLASHSTATE in self.runs:
            shown[FLASHSTATE] = self.runs[FLASHSTATE]
        return shown

    def _differ(self) -> bool:
        return self._shown()[STOCK_BEST].engine.name != STOCK

    def _how_it_went(self) -> dict[str, object]:
        window, runs, shown = self.options.window, self.runs, self._shown()
        return {
            "warmup_s": window.warmup_s,
            "window_s": window.measure_s,
            "stock_best": shown[STOCK_BEST].engine.name if STOCK_BEST in shown else None,
            "missing": list(self.missing),
            "runs": {name: _run(run) for name, run in runs.items()},
        }


def best(stock: list[Run]) -> Run:
    """The setting with the highest prompt throughput; among those within 1% of it, the best hit rate."""
    found = {
        number: (run.result.prompt_tokens_per_min, run.result.hit_rate or 0.0)
        for number, run in enumerate(stock)
    }
    return stock[best_setting(found)]


def _run(run: Run) -> dict[str, object]:
    return {
        "settings": list(run.engine.arguments),
        "server_start_s": round(run.start_s, 1),
        "measured_s": round(run.replay.closed_s - run.replay.opened_s, 2),
        "requests": len(run.replay.measured),
        "errors": errors_by_kind(run.replay.measured),
        **run.result.to_json(),
    }


def _architecture(config: Mapping[str, object]) -> object:
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names else None
