"""The runs that a comparison has, side by side for people, and as results.json for other tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from flashstate.bench.compare import Comparison as Compared
from flashstate.bench.engine import Engine
from flashstate.bench.options import Options
from flashstate.bench.result import Result
from flashstate.bench.result import Results as Runs
from flashstate.demo.curves import curves
from flashstate.demo.summary import summarise
from flashstate.replay.plan import Workload
from flashstate.replay.record import Record
from flashstate.replay.run_log import measured_records
from flashstate.report.engine import EngineResult
from flashstate.report.html import write_html
from flashstate.report.results import FLASHSTATE, STOCK, STOCK_BEST, Results


@dataclass(frozen=True)
class Run:
    """One engine's run: what the comparison says of it, and its measured requests."""

    engine: Engine
    found: Result
    records: tuple[Record, ...]

    @cached_property
    def figures(self) -> EngineResult:
        """For people."""
        summary = self.found.summary
        return summarise(self.records, summary["measured_s"], summary["missed_tokens"])

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        summary = self.found.summary
        return {
            "settings": list(self.engine.arguments),
            "server_start_s": round(self.found.start_s or 0.0, 1),
            "measured_s": round(summary["measured_s"], 2),
            "requests": summary["requests"]["measured"],
            "errors": summary["errors"],
            **self.figures.to_json(),
        }


@dataclass(frozen=True)
class Comparison:
    """Looks into runs of one load, made once. `cache`: how the user named the cache's size."""

    options: Options
    workload: Workload
    made: Runs
    cache: str

    @cached_property
    def runs(self) -> Mapping[str, Run]:
        """Those there are, by engine, in the order of engines. Reads the records: raises LogError, OSError."""
        found = {key.engine: result for key, result in self.made.runs.items()}
        return {
            engine.name: Run(
                engine,
                found[engine.name],
                tuple(measured_records(found[engine.name].key.records(self.options.out))),
            )
            for engine in self.options.engines
            if engine.name in found
        }

    @property
    def missing(self) -> tuple[str, ...]:
        """Engines that have not been measured."""
        return tuple(engine.name for engine in self.options.engines if engine.name not in self.runs)

    def write(self) -> None:
        """Writes results.json and report.html."""
        results, shown = self.results, self._shown
        results.write(self.options.out / "results.json")
        plots = {
            name: curves(run.records) for name, run in shown.items() if name != STOCK_BEST or self._differ
        }
        write_html(self.options.out / "report.html", results, self.captions, plots)

    @cached_property
    def results(self) -> Results:
        """The figures of stock, of the best stock setting, and of FlashState."""
        family, head = self.options.family, self.made.head
        return Results(
            command=head["command"],
            date=head["date"],
            machine=head["machine"],
            versions=head["versions"],
            model={"family": family.name, "architecture": _architecture(family.config), "weights": "random"},
            cache={
                "setting": self.cache,
                "blocks": self.options.blocks,
                "block_size": family.block_size,
                "checkpoint_blocks": family.checkpoint_blocks,
            },
            workload={**self.workload.description, **self._how_it_went()},
            engines={name: run.figures for name, run in self._shown.items()},
        )

    @property
    def captions(self) -> Mapping[str, str]:
        """How each of the engines shown is set, and how many of its requests failed, if any."""
        captions = {name: run.engine.caption for name, run in self._shown.items()}
        if STOCK_BEST in captions and not self._differ:
            captions[STOCK_BEST] = "the default is the best"
        for name, run in self._shown.items():
            requests = run.found.summary["requests"]
            if requests["failed"]:
                captions[name] += f", {requests['failed']} of {requests['measured']} requests failed"
        return captions

    @property
    def _shown(self) -> dict[str, Run]:
        """Stock's best is known when all of its settings have been measured."""
        stock = [engine.name for engine in self.options.engines if engine.is_stock]
        shown = {STOCK: self.runs[STOCK]} if STOCK in self.runs else {}
        (load,) = self.options.loads
        best = Compared(self.made.runs).best(stock, load)
        if best is not None and self.runs.keys() >= set(stock):
            shown[STOCK_BEST] = self.runs[best]
        if FLASHSTATE in self.runs:
            shown[FLASHSTATE] = self.runs[FLASHSTATE]
        return shown

    @property
    def _differ(self) -> bool:
        return self._shown[STOCK_BEST].engine.name != STOCK

    def _how_it_went(self) -> dict[str, object]:
        replay, shown = self.options.replay, self._shown
        return {
            "warmup_s": replay.warmup_s,
            "window_s": replay.measure_s,
            "stock_best": shown[STOCK_BEST].engine.name if STOCK_BEST in shown else None,
            "missing": list(self.missing),
            "runs": {name: run.as_json() for name, run in self.runs.items()},
        }


def _architecture(config: Mapping[str, object]) -> object:
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names else None
