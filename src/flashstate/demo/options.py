"""What a user asked the demo to do, checked, as options of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from flashstate.bench.engine import engines
from flashstate.bench.error import BenchError
from flashstate.bench.launch import CHUNK_TOKENS
from flashstate.bench.options import COMPARABLE, TOKEN_SCALE
from flashstate.bench.options import Options as BenchOptions
from flashstate.models.tiny import FAMILIES, Family
from flashstate.replay.options import AGENTS, TRACES
from flashstate.replay.options import Options as ReplayOptions

T = TypeVar("T")

TIME_SCALE: Final = 8.0
_AGENTS: Final = 8
_RECORDED: Final = 12
"""Sessions at a time."""
_QUICK_TURNS: Final = 5


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
    measure_s: float | None = None
    port: int | None = None

    def check(self) -> None:
        """Raises BenchError or OptionError for the first option that makes no sense."""
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
        if self.port is not None and not 1 <= self.port <= 65535:
            raise BenchError(f"--port {self.port}: must be from 1 to 65535")
        self.replay.check()

    @property
    def family(self) -> Family:
        """The tiny model to serve."""
        return FAMILIES[self.model]

    @property
    def replay(self) -> ReplayOptions:
        """The work to put before each engine: of agents all of it, of traces, which go on for ever, a time."""
        warmup_s, measure_s = self._window
        return ReplayOptions(
            ("http://localhost",),
            _or(self.sessions, _RECORDED if self.traces else _AGENTS),
            self.traces,
            TRACES if self.traces else AGENTS,
            warmup_s=_or(self.warmup_s, warmup_s),
            measure_s=measure_s if self.measure_s is None else self.measure_s,
            token_scale=_or(self.token_scale, TOKEN_SCALE),
            time_scale=_or(self.time_scale, TIME_SCALE),
            seed=self.seed,
            token_ids=f"16:{self.family.vocab_size}",  # the special tokens come first
            turns=_QUICK_TURNS if self.quick else ReplayOptions.turns,
        )

    def bench(self, blocks: int) -> BenchOptions:
        """The comparison: every engine once, at one load, with so many blocks of cache."""
        replay = self.replay
        return BenchOptions(
            self.out,
            engines(full=self.full),
            (replay.sessions,),
            1,
            self.model,
            blocks,
            CHUNK_TOKENS,
            replay,
            port=self.port,
        )

    @property
    def _window(self) -> tuple[float, float | None]:
        if not self.traces:
            return 0.0, None
        return (10.0, 25.0) if self.quick else (20.0, 45.0)


def _or(given: T | None, otherwise: T) -> T:
    return otherwise if given is None else given
