"""Adds up the events of a run, as they happen or as they are read back."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flashstate.percentiles import p50_p90
from flashstate.replay.record import error_kind
from flashstate.replay.run_log import Event


@dataclass
class Part:
    """One stretch of a run, in seconds from its start. None: not (yet) so."""

    opened_s: float | None = None
    last_s: float = 0.0
    closed_s: float | None = None
    stopped: str | None = None
    over: bool = False
    """Whether all the work was done."""
    restarts: int = 0
    client_late_s: float | None = None

    @property
    def measured_s(self) -> float:
        """How long was measured: to the close, or to the last request if it never came to that."""
        if self.opened_s is None:
            return 0.0
        return max(0.0, (self.last_s if self.closed_s is None else self.closed_s) - self.opened_s)


@dataclass
class Totals:
    """The measured requests' sums, and what else the verdict and a resumed run need.

    Takes 16 bytes a measured request and the number of each play that was finished.
    """

    parts: list[Part] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    requests: int = 0
    failed_outside: int = 0
    measured: int = 0
    answered: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ideal_tokens: int = 0
    output_tokens: int = 0
    edits: int = 0
    says_cached: bool = False
    errors: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    missed_tokens: Counter[str] = field(default_factory=Counter)
    ttft_s: array[float] = field(default_factory=lambda: array("d"))
    e2e_s: array[float] = field(default_factory=lambda: array("d"))

    def take(self, event: Event) -> None:
        """Takes the next event. Raises KeyError, TypeError or ValueError for one that is not ours."""
        kind = event["event"]
        if kind == "started":
            self.parts.append(Part())
        elif kind == "opened":
            self.parts[-1].opened_s = float(event["s"])
        elif kind == "request":
            self._request(event)
        elif kind == "play":
            self.done.add(int(event["play"]))
        elif kind == "closed":
            part = self.parts[-1]
            part.closed_s, part.over = float(event["s"]), bool(event.get("over"))
            part.stopped, part.restarts = event["stopped"], int(event["restarts"])
            part.client_late_s = event["client_late_s"]
            self.missed_tokens.update(event["missed_tokens"] or {})

    @property
    def measured_s(self) -> float:
        """Seconds measured, in all parts together."""
        return sum(part.measured_s for part in self.parts)

    @property
    def over(self) -> bool:
        """Whether all the work was done."""
        return bool(self.parts) and self.parts[-1].over

    @property
    def failed(self) -> int:
        """Measured requests that failed."""
        return self.errors.total()

    def _request(self, event: Event) -> None:
        self.requests += 1
        self.parts[-1].last_s = max(self.parts[-1].last_s, float(event["end_s"]))
        error = event["error"]
        if not event["measured"]:
            self.failed_outside += error is not None
            return
        self.measured += 1
        if error is not None:
            self.errors[error_kind(error)] += 1
            self.examples.setdefault(error_kind(error), error)
            return
        self.answered += 1
        self.prompt_tokens += int(event["prompt_tokens"])
        self.cached_tokens += int(event["cached_tokens"])
        self.ideal_tokens += int(event["ideal_tokens"])
        self.output_tokens += int(event["output_tokens"])
        self.edits += event["kind"] == "edit"
        self.says_cached |= bool(event["says_cached"])
        if event["ttft_s"] is not None:
            self.ttft_s.append(float(event["ttft_s"]))
        self.e2e_s.append(float(event["e2e_s"]))


def summary(totals: Totals, parameters: Mapping[str, Any], reasons: Sequence[str]) -> dict[str, Any]:
    """The figures of a run as plain JSON values. `reasons`: why it is not valid. Only answered requests count.

    Units: seconds, tokens, tokens a second. None where nothing was counted or the server does not say.
    """
    seconds = totals.measured_s
    ttft, e2e = p50_p90(totals.ttft_s), p50_p90(totals.e2e_s)
    knows_ideal = not parameters["chat"] and totals.prompt_tokens > 0
    return {
        "verdict": "invalid" if reasons else "valid",
        "reasons": list(reasons),
        "measured_s": round(seconds, 3),
        "parts": len(totals.parts),
        "requests": {"measured": totals.measured, "answered": totals.answered, "failed": totals.failed,
                     "outside": totals.requests - totals.measured, "failed_outside": totals.failed_outside,
                     "edits": totals.edits},
        "prompt_tokens_per_s": round(totals.prompt_tokens / seconds, 3) if seconds else None,
        "output_tokens_per_s": round(totals.output_tokens / seconds, 3) if seconds else None,
        "hit_rate": _share(totals.cached_tokens, totals.prompt_tokens) if totals.says_cached else None,
        "ideal_hit_rate": _share(totals.ideal_tokens, totals.prompt_tokens) if knows_ideal else None,
        "prompt_tokens": totals.prompt_tokens,
        "output_tokens": totals.output_tokens,
        "ttft_s": None if ttft is None else {"p50": round(ttft[0], 6), "p90": round(ttft[1], 6)},
        "latency_s": None if e2e is None else {"p50": round(e2e[0], 6), "p90": round(e2e[1], 6)},
        "client_late_s": max((p.client_late_s for p in totals.parts if p.client_late_s is not None), default=None),
        "errors": dict(totals.errors),
        "restarts": sum(part.restarts for part in totals.parts),
        "missed_tokens": dict(totals.missed_tokens) or None,
        "parameters": dict(parameters),
    }  # fmt: skip


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None
