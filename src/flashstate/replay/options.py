"""What a user asked `flashstate replay` to do, checked."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from flashstate.console import whole_number
from flashstate.replay.edits_workload import EditsWorkload
from flashstate.replay.gaps import READINGS, Gaps, Reading
from flashstate.replay.math_workload import MathWorkload
from flashstate.replay.plan import Workload
from flashstate.replay.recorded import RecordedWorkload, Scale
from flashstate.replay.synthetic import LEAST_TURNS, Shape, SyntheticWorkload
from flashstate.traces.read import read_sessions
from flashstate.traces.session import Session, TraceError
from flashstate.urls import is_server, without_passwords

TRACES, MATH, EDITS, AGENTS = "traces", "math", "edits", "agents"
WORKLOADS: Final = (TRACES, MATH, EDITS, AGENTS)
MOST_SESSIONS: Final = 10_000
_SPREAD_S: Final = 60.0
"""Sessions begin within this time, or within the warm-up if that is shorter."""
_MOST_TURNS: Final = 1000
_LEAST_REQUESTS: Final = 2
_LEAST_IDS: Final = 100


class OptionError(Exception):
    """An option that makes no sense. One line: the option, its value, the limit."""


@dataclass(frozen=True)
class Options:
    """The options of a run. Times in seconds; `max_failed` in percent of the measured requests.

    `measure_s`: None measures all the work of `agents`, to its end; the others go on for ever. `turns`: of each of
    those agents, whose tokens and times are made for tiny models: no scale applies.
    """

    urls: tuple[str, ...]
    sessions: int
    traces: tuple[Path, ...] = ()
    workload: str = TRACES
    model: str | None = None
    warmup_s: float = 900.0
    measure_s: float | None = 1800.0
    gaps: str = "think-only"
    api_time_scale: float = 1.0
    token_scale: float = 1.0
    time_scale: float = 1.0
    seed: int = 0
    chat: bool = False
    token_ids: str = "256:20000"
    stall_s: float = 120.0
    max_failed: float = 5.0
    turns: int = Shape.turns

    def check(self) -> None:
        """Raises OptionError for the first option that makes no sense."""
        if not self.urls:
            raise OptionError("--url: names no server")
        for url in self.urls:
            if not is_server(url):
                raise OptionError(f"--url {without_passwords(url)}: must be like http://localhost:8000")
        _choice("--workload", self.workload, WORKLOADS)
        _choice("--gaps", self.gaps, READINGS)
        if self.workload == TRACES and not self.traces:
            raise OptionError(f"name traces to replay, or a workload: --workload {', '.join(WORKLOADS[1:])}")
        if self.workload != TRACES and self.traces:
            raise OptionError(f"--workload {self.workload}: reads no traces; leave out {self.traces[0]}")
        if not 1 <= self.sessions <= MOST_SESSIONS:
            raise OptionError(f"--sessions {self.sessions}: must be from 1 to {MOST_SESSIONS:,}")
        if self.measure_s is None and self.workload != AGENTS:
            raise OptionError(
                f"--workload {self.workload}: goes on for ever; say for how long to --measure it"
            )
        if self.workload == AGENTS and not LEAST_TURNS <= self.turns <= _MOST_TURNS:
            raise OptionError(f"--turns {self.turns}: must be from {LEAST_TURNS} to {_MOST_TURNS:,}")
        for option, value in (
            ("--measure", self.measure_s), ("--token-scale", self.token_scale),
            ("--time-scale", self.time_scale), ("--stall-timeout", self.stall_s),
        ):  # fmt: skip
            if value is not None and not 0 < value < math.inf:
                raise OptionError(f"{option} {value:g}: must be above 0")
        for option, value in (("--warmup", self.warmup_s), ("--api-time-scale", self.api_time_scale)):
            if not 0 <= value < math.inf:
                raise OptionError(f"{option} {value:g}: must be 0 or more")
        if not 0 <= self.max_failed <= 100:
            raise OptionError(f"--max-failed {self.max_failed:g}: must be from 0 to 100 percent")
        if not 0 <= self.seed < 2**32:
            raise OptionError(f"--seed {self.seed}: must be from 0 to 4294967295")
        self.ids  # noqa: B018 (checks it)

    @property
    def scale(self) -> float | None:
        """What lengths are divided by; None where nothing divides them."""
        return None if self.workload == AGENTS else self.token_scale

    @property
    def ids(self) -> range:
        """The token ids that prompts are made of. Raises OptionError."""
        first, _, last = self.token_ids.partition(":")
        start, end = whole_number(first), whole_number(last)
        if start is None or end is None or end - start < _LEAST_IDS:
            raise OptionError(
                f"--token-ids {self.token_ids[:40]}: must be FIRST:END, {_LEAST_IDS} ids or more, as in 256:20000"
            )
        return range(start, end)

    def read(self) -> tuple[Session, ...]:
        """The sessions to replay; none where the workload is made up. Raises TraceError.

        Left out: recordings that another one stands for, and main agents with one request only.
        """
        if self.workload != TRACES:
            return ()
        found = tuple(
            session
            for path in self.traces
            for session in read_sessions(path)
            if session.primary and len(session.main.turns) >= _LEAST_REQUESTS
        )
        if not found:
            names = ", ".join(path.name for path in self.traces)
            raise TraceError(names, "", "no session to replay: all are linked to another or of one request")
        return found

    def make_workload(self, traces: tuple[Session, ...]) -> Workload:
        """The work, out of what `read` gave."""
        scale = Scale(self.token_scale, self.time_scale)
        spread_s = min(_SPREAD_S, self.warmup_s)
        if self.workload == AGENTS:
            return SyntheticWorkload(Shape(self.sessions, self.turns), self.seed)
        if self.workload == MATH:
            return MathWorkload(self.sessions, scale, self.seed, spread_s)
        if self.workload == EDITS:
            return EditsWorkload(self.sessions, scale, self.seed, spread_s)
        gaps = Gaps(cast("Reading", self.gaps), self.api_time_scale)
        return RecordedWorkload(traces, scale, self.sessions, self.seed, spread_s, gaps)

    def parameters(self, traces: Sequence[Session], model: str) -> dict[str, Any]:
        """What a resumed run must have in common with the run that it goes on with. Plain JSON values."""
        scales = {
            "gaps": self.gaps,
            "api_time_scale": self.api_time_scale,
            "token_scale": self.token_scale,
            "time_scale": self.time_scale,
        }
        return {
            "urls": [without_passwords(url) for url in self.urls],
            "model": model,
            "workload": self.workload,
            "traces": [path.resolve().name for path in self.traces],
            "digest": digest(traces),
            "sessions": self.sessions,
            "warmup_s": self.warmup_s,
            "measure_s": self.measure_s,
            **({"turns": self.turns} if self.workload == AGENTS else scales),
            "seed": self.seed,
            "chat": self.chat,
            "token_ids": self.token_ids,
            "stall_timeout_s": self.stall_s,
            "max_failed_percent": self.max_failed,
        }


def digest(traces: Sequence[Session]) -> str:
    """Changes with any length, time or relation of any request."""
    found = hashlib.sha256()
    for session in traces:
        for agent in session.agents:
            found.update(repr((session.name, agent.name, agent.spawn_turn)).encode())
            for turn in agent.turns:
                row = turn.prompt_tokens, turn.output_tokens, turn.gap_s, turn.api_s, turn.shared_blocks
                found.update(repr(row).encode())
                found.update(turn.new_blocks.tobytes())
    return found.hexdigest()[:16]


def _choice(option: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise OptionError(f"{option} {value}: choose one of {', '.join(choices)}")
