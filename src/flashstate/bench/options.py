"""What a user asked `flashstate bench` to do, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from flashstate.bench.engine import Engine, chosen, known, started
from flashstate.bench.error import BenchError
from flashstate.bench.result import safe_name
from flashstate.console import whole_number
from flashstate.core.cost import PrefillCostModel
from flashstate.cost_file import CostFileError, read_prefill_cost
from flashstate.models.tiny import FAMILIES, Family
from flashstate.replay.options import MOST_SESSIONS, OptionError
from flashstate.replay.options import Options as ReplayOptions
from flashstate.traces.session import Session

COMPARABLE: Final = tuple(name for name, family in FAMILIES.items() if family.mixer != "kda")
"""The tiny models that stock vLLM can serve on a CPU too."""
TOKEN_SCALE: Final = 27.2
"""GLM-5.3-Flash has blocks of 4,352 tokens, the tiny models of 160: tokens shrink as blocks do."""
_MOST_REPEATS: Final = 100


@dataclass(frozen=True)
class Options:
    """The options of a comparison. Times in seconds. `replay`: of every run, but for URL, sessions and seed.

    `port`: of the servers, on loopback; None: a free one each.
    """

    out: Path
    engines: tuple[Engine, ...]
    loads: tuple[int, ...]
    repeat: int
    model: str
    blocks: int
    chunk: int
    """Tokens of one prompt in a step, at most."""
    replay: ReplayOptions
    cost_file: Path | None = None
    port: int | None = None

    @classmethod
    def read(
        cls, out: Path, engines: str, sessions: str, repeat: int, model: str, blocks: int, chunk: int,
        replay: ReplayOptions, cost_file: Path | None,
    ) -> Options:  # fmt: skip
        """From the command line. Raises BenchError for the first option that makes no sense."""
        options = cls(out, chosen(engines), _loads(sessions), repeat, model, blocks, chunk, replay, cost_file)
        if model not in COMPARABLE:
            why = "stock vLLM cannot serve it on a CPU; " * (model in FAMILIES)
            raise BenchError(f"--model {model}: {why}choose one of {', '.join(COMPARABLE)}")
        if not 1 <= repeat <= _MOST_REPEATS:
            raise BenchError(f"--repeat {repeat}: must be from 1 to {_MOST_REPEATS}")
        least, most = options.family.block_size, options.family.max_model_len
        if not least <= chunk <= most:
            raise BenchError(f"--chunk {chunk}: must be from {least} (a block) to {most:,} tokens")
        files = [safe_name(engine.name) for engine in options.engines]
        if len(set(files)) < len(files):
            raise BenchError(f"--engines {engines}: two names give the same files; name them otherwise")
        if blocks < 1:
            raise BenchError(f"--cache {blocks}: must be 1 block or more")
        try:
            for number in range(repeat):
                options.of_run("http://localhost", options.loads[0], number).check()
            options.cost  # noqa: B018 (checks it)
        except (OptionError, CostFileError) as error:
            raise BenchError(str(error)) from None
        return options

    @property
    def family(self) -> Family:
        """The tiny model to serve."""
        return FAMILIES[self.model]

    @cached_property
    def cost(self) -> PrefillCostModel | None:
        """What prefill costs here, if somebody has measured it."""
        return None if self.cost_file is None else read_prefill_cost(self.cost_file)

    @property
    def seconds(self) -> float | None:
        """What a run takes, its server's start apart; None: as long as its work."""
        return None if self.replay.measure_s is None else self.replay.warmup_s + self.replay.measure_s

    def most_tokens(self, traces: tuple[Session, ...]) -> int:
        """Prompt and output of the longest request of any run. Endless work draws on the same in all of them."""
        runs = [self.of_run("", load, number) for load in self.loads for number in range(self.repeat)]
        if self.seconds is not None:
            del runs[1:]
        return max(run.make_workload(traces).most_tokens for run in runs)

    def check_length(self, most_tokens: int) -> None:
        """Raises BenchError for requests that the model or the cache cannot hold."""
        if not started(self.engines):
            return
        if most_tokens > self.family.max_model_len:
            raise BenchError(
                f"the longest request has {most_tokens:,} tokens, the model takes {self.family.max_model_len:,}: "
                f"give {'fewer --turns' if self.replay.scale is None else 'a larger --token-scale'}"
            )
        least = least_blocks(most_tokens, self.family)
        if self.blocks < least:
            raise BenchError(
                f"--cache {self.blocks}: the longest request, {most_tokens:,} tokens, needs {least} blocks of "
                f"{self.family.block_size} tokens; give that or more"
            )

    def of_run(self, url: str, sessions: int, repeat: int) -> ReplayOptions:
        """One run's: the same agents do the same for every engine; each repeat has others."""
        return replace(self.replay, urls=(url,), sessions=sessions, seed=self.replay.seed + repeat)

    def told(self, engine: Engine) -> Engine:
        """The engine with what all of its kind are told."""
        if engine.mode != "flashstate" or self.cost_file is None:
            return engine
        return engine.with_arguments("--prefill-cost", str(self.cost_file))

    def with_all(self, engines: Mapping[str, str], loads: Sequence[int]) -> Options:
        """The same with every engine (name: caption) and load that the folder has figures of."""
        mine = {engine.name: engine for engine in self.engines}
        others = [known(name, caption) for name, caption in engines.items() if name not in mine]
        return replace(self, engines=(*others, *self.engines), loads=tuple(loads))

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "engines": {engine.name: engine.caption for engine in self.engines},
            "sessions": list(self.loads),
            "repeat": self.repeat,
            "model": self.model,
            "blocks": self.blocks,
            "chunk": self.chunk,
            "prefill_cost": None if self.cost is None else [self.cost.d, self.cost.e],
            "block_tokens": self.family.block_size,
            "checkpoint_blocks": self.family.checkpoint_blocks,
            "weights": "random",
        }


def least_blocks(most_tokens: int, family: Family) -> int:
    """The longest request, the copy of a block it shares, the checkpoints held while it resumes, and the null block."""
    return -(-most_tokens // family.block_size) + 3 * family.checkpoint_blocks + 2


def _loads(text: str) -> tuple[int, ...]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        load = whole_number(part)
        if load is None or not 1 <= load <= MOST_SESSIONS:
            raise BenchError(
                f"--sessions {part[:40]}: must be numbers from 1 to {MOST_SESSIONS:,}, with commas"
            )
        found.append(load)
    if not found:
        raise BenchError("--sessions: names none")
    return tuple(sorted(set(found)))
