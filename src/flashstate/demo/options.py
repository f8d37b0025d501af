"""What a user asked the demo to do, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flashstate.bench.error import BenchError
from flashstate.bench.options import COMPARABLE, TOKEN_SCALE
from flashstate.models.tiny import FAMILIES, Family
from flashstate.replay.driver import Window
from flashstate.replay.plan import Workload
from flashstate.replay.recorded import RecordedWorkload, Scale
from flashstate.replay.synthetic import Shape, SyntheticWorkload
from flashstate.traces.session import Session, TraceError
from flashstate.traces.weka import read_weka

TIME_SCALE: Final = 8.0
TRACE_SESSIONS: Final = 12


@dataclass(frozen=True)
class Options:
    """The demo's options. None: the demo chooses. Times in seconds."""

    out: Path
    model: str = "gdn"
    quick: bool = False
    full: bool = False
    traces: tuple[Path, ...] = ()
    token_scale: float | None = None
    time_scale: float | None = None
    sessions: int | None = None
    seed: int = 1
    cache: str = "small"
    warmup_s: float | None = None
    window_s: float | None = None
    port: int | None = None

    def check(self) -> None:
        """Raises BenchError for the first option that makes no sense."""
        if self.model not in COMPARABLE:
            known = ", ".join(COMPARABLE)
            why = "stock vLLM cannot serve it on a CPU, so there is nothing to compare; " * (
                self.model in FAMILIES
            )
            raise BenchError(f"--model {self.model}: {why}choose one of {known}")
        if self.quick and self.full:
            raise BenchError("--quick and --full: choose one")
        if not self.traces and (self.token_scale is not None or self.time_scale is not None):
            raise BenchError("--token-scale and --time-scale scale traces: name one with --trace")
        _above("--token-scale", self.token_scale)
        _above("--time-scale", self.time_scale)
        _above("--window", self.window_s)
        if self.warmup_s is not None and not 0 <= self.warmup_s < math.inf:
            raise BenchError(f"--warmup {self.warmup_s:g}: must be 0 or more seconds")
        if self.sessions is not None and not 1 <= self.sessions <= 1000:
            raise BenchError(f"--sessions {self.sessions}: must be from 1 to 1000")
        if not 0 <= self.seed < 2**32:
            raise BenchError(f"--seed {self.seed}: must be from 0 to 4294967295")
        if self.port is not None and not 1 <= self.port <= 65535:
            raise BenchError(f"--port {self.port}: must be from 1 to 65535")

    @property
    def family(self) -> Family:
        """The tiny model to serve."""
        return FAMILIES[self.model]

    def workload(self) -> Workload:
        """The work to put before each engine. Raises BenchError for a trace that cannot be read."""
        if not self.traces:
            shape = Shape(sessions=self.sessions or Shape.sessions, turns=5 if self.quick else Shape.turns)
            return SyntheticWorkload(shape, self.seed)
        scale = Scale(self.token_scale or TOKEN_SCALE, self.time_scale or TIME_SCALE)
        traces = tuple(_read(path) for path in self.traces)
        return RecordedWorkload(
            traces, scale, self.sessions or TRACE_SESSIONS, self.seed, self.window.warmup_s
        )

    @property
    def window(self) -> Window:
        """What is measured. Work with an end is measured whole; traces go on for ever, so for a time."""
        if not self.traces:
            return Window(self.warmup_s or 0.0, self.window_s)
        warmup_s = self.warmup_s if self.warmup_s is not None else (10.0 if self.quick else 20.0)
        return Window(warmup_s, self.window_s or (25.0 if self.quick else 45.0))


def _above(option: str, value: float | None) -> None:
    if value is not None and not 0 < value < math.inf:
        raise BenchError(f"{option} {value:g}: must be above 0")


def _read(path: Path) -> Session:
    try:
        return read_weka(path)
    except TraceError as error:
        raise BenchError(f"--trace {error}") from None
