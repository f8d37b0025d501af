"""What an engine's steps take: a model of its time, given as presets or read from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any, Final, Self

from flashstate.core.cost import PrefillCostModel
from flashstate.files import check_regular


class TimingError(ValueError):
    """A time model that makes no sense. One line: the value, the limit, the way out."""


_LEAST: Final = {"max_batched_tokens": 64, "long_prefill_tokens": 64, "max_sequences": 1, "gpus": 1}
"""Chunks of a few tokens would make a step of every token: a run without end."""


@dataclass(frozen=True, slots=True)
class TimeModel:
    """One engine's time. A step that computes prompt tokens [a, b) of some requests beside `batch` decodes takes

        sum of T(a, b)  +  decode_step_s + batch * decode_sequence_s + context * decode_token_s

    seconds, the second part only if anything decodes; `context` is the tokens that all decodes attend to. T is the
    prefill cost model, in seconds. A chunk has at most `long_prefill_tokens`, a step `max_batched_tokens` tokens and
    `max_sequences` requests. `gpus`: of one engine.
    """

    prefill: PrefillCostModel = field(default_factory=PrefillCostModel)
    decode_step_s: float = 6.0e-3
    """The weights are read once a step, however many decode."""
    decode_sequence_s: float = 2.5e-4
    """Its state is read and written, its experts are read."""
    decode_token_s: float = 2.5e-10
    """Attention, or the index that picks what it attends to."""
    max_batched_tokens: int = 16_384
    long_prefill_tokens: int = 8_704
    max_sequences: int = 256
    gpus: int = 2

    def __post_init__(self) -> None:
        for name in ("decode_step_s", "decode_sequence_s", "decode_token_s"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise TimingError(f"{name} {value}: must be finite and 0 or more")
        if self.decode_step_s + self.decode_sequence_s == 0:
            raise TimingError("decode_step_s and decode_sequence_s are 0: one must be above")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise TimingError(f"{name} {getattr(self, name)}: must be {least} or more")
        if self.max_batched_tokens < self.max_sequences:
            raise TimingError(
                f"max_batched_tokens {self.max_batched_tokens}: must not be below max_sequences, {self.max_sequences}"
            )

    def decode_s(self, batch: int, context: int, steps: int = 1) -> float:
        """Seconds of `steps` decode steps of the same `batch` requests, which start at `context` tokens in all."""
        if batch == 0:
            return 0.0
        tokens = steps * context + batch * (steps * (steps - 1) // 2)
        return steps * (self.decode_step_s + batch * self.decode_sequence_s) + tokens * self.decode_token_s

    def steps_until(self, batch: int, context: int, seconds: float, most: int) -> int:
        """The fewest decode steps that take `seconds` or more; from 1 to `most`."""
        low, high = 1, most
        while low < high:
            middle = (low + high) // 2
            if self.decode_s(batch, context, middle) >= seconds:
                high = middle
            else:
                low = middle + 1
        return low

    def as_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """What `values` name; GLM-5.3-Flash's for the rest. Raises TimingError."""
        base = cls()
        unknown = sorted(values.keys() - set(cls.__slots__))
        if unknown:
            raise TimingError(f"{unknown[0]!r}: unknown; one of {', '.join(cls.__slots__)}")
        prefill = values.get("prefill")
        try:
            cost = (
                base.prefill
                if prefill is None
                else PrefillCostModel(float(prefill["d"]), float(prefill["e"]))
            )
            rest = {name: _like(getattr(base, name), v) for name, v in values.items() if name != "prefill"}
        except (KeyError, TypeError) as error:
            raise TimingError(f"not numbers, or missing: {error}") from None
        except ValueError as error:
            raise TimingError(str(error)) from None
        return cls(**{name: getattr(base, name) for name in cls.__slots__} | rest | {"prefill": cost})

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Reads a JSON object of fields, `prefill` as {"d": ..., "e": ...}. Raises TimingError."""
        try:
            check_regular(path)
            values = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(values, dict):
                raise TimingError("not an object")
            return cls.from_json(values)
        except OSError as error:
            raise TimingError(f"{path}: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:
            raise TimingError(f"{path}: {error}") from None


def _like(default: float, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r}")
    if isinstance(default, int):
        if not isfinite(value) or value != int(value):
            raise ValueError(f"{value}: must be a whole number")
        return int(value)
    return float(value)


def time_model(geometry: str, prefill: PrefillCostModel) -> TimeModel:
    """The time model of the geometry called so, GLM-5.3-Flash's for others, with that prefill cost."""
    return replace(_PRESETS.get(geometry, _GLM), prefill=prefill)


_GLM: Final = TimeModel()
"""Two B200s, TP 2. Prefill: published. Decode: fitted by hand to the two published operating points at 48 sessions.

FlashState: 4.74M prompt tokens a minute a GPU at 87% hits are 20.5K tokens/s to compute, 40% of the engine's time by T
at 140K tokens; the rest of it for 61.7K output tokens a minute, about 20 requests at a time (28 s each, by Little's
law), is 11.7 ms a decode step. vLLM: 1.54M at 30% are 36K tokens/s, 70%; 22.0K output tokens, about 15 decoding: 12.5
ms. 6 + 20 * 0.25 + 20 * 140K * 0.25e-6 ms = 11.7 ms. How it splits between step and sequence is ours (state traffic
alone is 0.02 ms a sequence; experts are the rest), as is the token budget. The chunk is published.
"""

_PRESETS: Final[Mapping[str, TimeModel]] = {
    "glm-5.3-flash": _GLM,
    "qwen3.8-flash-next": TimeModel(
        decode_step_s=5.0e-3, decode_sequence_s=2.0e-4, decode_token_s=2.0e-10, long_prefill_tokens=6_272
    ),
    "nemotron-3-super": TimeModel(
        decode_step_s=7.0e-3, decode_sequence_s=2.5e-4, decode_token_s=4.0e-10, long_prefill_tokens=8_320
    ),
}
"""Qwen: the published 38.8K output tokens a minute a GPU at 48 sessions, if 20 requests are in flight and 40% of the
time goes to prefill, as for GLM (neither is published); two blocks a chunk, as GLM has. Nemotron: a guess, for nothing
is published; one block a chunk.
"""
