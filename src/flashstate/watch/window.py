"""What a server did over the last window: the difference of two samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from flashstate.economics.accounts import profit_per_gpu_hour
from flashstate.economics.prices import Prices
from flashstate.watch.sample import Sample


@dataclass(frozen=True, slots=True)
class Away:
    """A server that cannot be read: why, in a few words."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Levels now, and rates over `seconds`: tokens a minute, the mean TTFT in seconds, a share for the hit rate.

    None: not known (yet), as nothing was asked in the window or the server does not count it.
    """

    seconds: float
    running: int
    waiting: int
    kv_use: float
    states: int | None
    prompt_tokens_per_min: float | None = None
    output_tokens_per_min: float | None = None
    hit_rate: float | None = None
    ttft_s: float | None = None
    missed_tokens_per_min: Mapping[str, float] | None = None

    def profit_per_gpu_hour(self, prices: Prices, gpus: int) -> float | None:
        """Dollars, if it went on like this: what users pay for these tokens less the rent of the engine's GPUs."""
        if self.prompt_tokens_per_min is None or self.output_tokens_per_min is None:
            return None
        # Without prompts there is no hit rate, nor anything that it is a share of.
        hit_rate = self.hit_rate or 0.0
        return profit_per_gpu_hour(
            prices, hit_rate, self.prompt_tokens_per_min, self.output_tokens_per_min, gpus
        )


class Window:
    """The samples of one server over the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._samples: deque[Sample] = deque()

    def add(self, sample: Sample) -> Reading:
        """Takes a sample; says what happened since the oldest that still counts."""
        samples = self._samples
        if samples and not sample.follows(samples[-1]):
            samples.clear()
        samples.append(sample)
        # The oldest may be a little older than the window: else a window of one interval would be empty.
        while len(samples) > 2 and sample.at_s - samples[1].at_s >= self._seconds:
            samples.popleft()
        return _between(samples[0], sample)


def _between(before: Sample, now: Sample) -> Reading:
    seconds = now.at_s - before.at_s
    levels = Reading(seconds, now.running, now.waiting, now.kv_use, now.states)
    if seconds <= 0:
        return levels
    a_minute = 60 / seconds
    prompt = now.prompt_tokens - before.prompt_tokens
    first = now.first_tokens - before.first_tokens
    cached = max(0.0, now.cached_tokens - before.cached_tokens)
    return Reading(
        seconds,
        now.running,
        now.waiting,
        now.kv_use,
        now.states,
        prompt_tokens_per_min=prompt * a_minute,
        output_tokens_per_min=(now.output_tokens - before.output_tokens) * a_minute,
        hit_rate=min(1.0, cached / prompt) if prompt else None,
        ttft_s=(now.ttft_sum_s - before.ttft_sum_s) / first if first else None,
        missed_tokens_per_min=_missed(before, now, a_minute),
    )


def _missed(before: Sample, now: Sample, a_minute: float) -> Mapping[str, float] | None:
    if now.missed_tokens is None or before.missed_tokens is None:
        return None
    return {
        reason: max(0.0, tokens - before.missed_tokens.get(reason, 0.0)) * a_minute
        for reason, tokens in now.missed_tokens.items()
    }
