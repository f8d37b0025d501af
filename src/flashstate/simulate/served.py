"""What an engine served in the measured window: throughput, times to first token, latencies, waits."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from flashstate.simulate.rules import Rules

_MINUTE_S = 60.0


class Served:
    """Collects a run's figures. Throughputs come out a minute and GPU, times in seconds."""

    def __init__(self, rules: Rules, gpus: int) -> None:
        self._rules = rules
        self._gpus = gpus
        self.prompt_tokens = 0
        """Of requests whose first token fell into the window, cached or computed: the paper's throughput."""
        self.ttfts: list[float] = []
        self.waits: list[float] = []
        self.latencies: list[float] = []
        self.output_tokens = 0.0
        self.too_long = 0
        self._busy_s = 0.0
        self._request_s = 0.0

    def first_token(self, now: float, arrived_s: float, waited_s: float, prompt_tokens: int) -> bool:
        """A request has its first token; whether that is in the window."""
        if not self._rules.is_measured(now):
            return False
        self.prompt_tokens += prompt_tokens
        self.ttfts.append(now - arrived_s)
        self.waits.append(waited_s)
        return True

    def step(self, start: float, end: float, running: int, tokens: int) -> None:
        """Steps of `running` requests from `start` to `end` put out `tokens` tokens, evenly."""
        rules = self._rules
        inside = min(end, rules.duration_s) - max(start, rules.warmup_s)
        if inside > 0:
            self._busy_s += inside
            self._request_s += inside * running
            self.output_tokens += tokens * inside / (end - start)

    def ended(self, now: float, arrived_s: float) -> None:
        """A request is over."""
        if self._rules.is_measured(now):
            self.latencies.append(now - arrived_s)

    def put_out(self, now: float, tokens: int) -> None:
        """So many tokens came out at `now`."""
        if self._rules.is_measured(now):
            self.output_tokens += tokens

    def figures(
        self, unserved: Sequence[float], finished_s: Sequence[float], preemptions: int
    ) -> dict[str, float]:
        """All of them. `unserved`: how long those have waited that had no first token at the end.

        `finished_s`: when trajectories ended. `preemptions`: in the whole run.
        """
        window_s = self._rules.duration_s - self._rules.warmup_s
        a_minute = _MINUTE_S / window_s / self._gpus
        waits = [*self.waits, *unserved]
        return {
            "prompt_tokens_per_min": self.prompt_tokens * a_minute,
            "output_tokens_per_min": self.output_tokens * a_minute,
            **{f"ttft_p{p}_s": _percentile(self.ttfts, p) for p in (50, 90, 99)},
            "latency_mean_s": fmean(self.latencies) if self.latencies else 0.0,
            **{f"latency_p{p}_s": _percentile(self.latencies, p) for p in (50, 90)},
            "wait_p99_s": _percentile(waits, 99),
            "worst_wait_s": max(waits, default=0.0),
            "unserved": float(len(unserved)),
            "preemptions": float(preemptions),
            "too_long": float(self.too_long),
            "running_mean": self._request_s / window_s,
            "busy_share": self._busy_s / window_s,
            "trajectories_finished": float(sum(map(self._rules.is_measured, finished_s))),
        }


def _percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent)) if values else 0.0
