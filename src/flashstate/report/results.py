"""results.json: the figures of a comparison, in a fixed form that other tools read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flashstate.files import write_text
from flashstate.report.engine import EngineResult

STOCK: Final = "stock"
STOCK_BEST: Final = "stock-best"
FLASHSTATE: Final = "flashstate"
ENGINES: Final = (STOCK, STOCK_BEST, FLASHSTATE)


@dataclass(frozen=True)
class Results:
    """A comparison of engines on one machine. The mappings hold plain JSON values.

    `engines` has those of stock, stock-best and flashstate that were measured: fewer if a run broke off.
    """

    command: str
    date: str  # ISO 8601, with the offset from UTC
    machine: Mapping[str, object]
    versions: Mapping[str, str]
    model: Mapping[str, object]
    cache: Mapping[str, object]
    workload: Mapping[str, object]
    engines: Mapping[str, EngineResult]

    @property
    def ratios(self) -> dict[str, dict[str, float | None]]:
        """FlashState's figures over each stock engine's; None where there is nothing to divide by."""
        ours = self.engines.get(FLASHSTATE)
        return {
            f"{FLASHSTATE}/{name}": _ratios(ours, self.engines[name])
            for name in (STOCK, STOCK_BEST)
            if ours is not None and name in self.engines
        }

    def to_json(self) -> dict[str, object]:
        """The content of results.json."""
        return {
            "command": self.command,
            "date": self.date,
            "machine": dict(self.machine),
            "versions": dict(self.versions),
            "model": dict(self.model),
            "cache": dict(self.cache),
            "workload": dict(self.workload),
            "engines": {name: self.engines[name].to_json() for name in ENGINES if name in self.engines},
            "ratios": self.ratios,
        }

    def write(self, path: Path) -> None:
        """Writes the file whole or not at all, making its folder. Raises OSError."""
        write_text(path, json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n")


def _ratios(ours: EngineResult, theirs: EngineResult) -> dict[str, float | None]:
    return {
        "hit_rate": _over(ours.hit_rate, theirs.hit_rate),
        "recomputed_tokens": _over(ours.recomputed_tokens, theirs.recomputed_tokens),
        "ttft_p50": _over(ours.ttft_s.p50, theirs.ttft_s.p50),
        "ttft_p90": _over(ours.ttft_s.p90, theirs.ttft_s.p90),
        "e2e_p50": _over(ours.e2e_s.p50, theirs.e2e_s.p50),
        "e2e_p90": _over(ours.e2e_s.p90, theirs.e2e_s.p90),
        "prompt_tokens_per_min": _over(ours.prompt_tokens_per_min, theirs.prompt_tokens_per_min),
        "output_tokens_per_min": _over(ours.output_tokens_per_min, theirs.output_tokens_per_min),
    }


def _over(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or not theirs else round(ours / theirs, 4)
