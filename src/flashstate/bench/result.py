"""What one run gave, and where it is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from flashstate.bench.error import BenchError
from flashstate.core.cost import PrefillCostModel
from flashstate.files import write_text
from flashstate.replay.run_log import measured_records

_SAFE: Final = "-_."


@dataclass(frozen=True)
class RunKey:
    """Which run: an engine at a load, in a repeat."""

    engine: str
    sessions: int
    repeat: int

    def __str__(self) -> str:
        return f"{self.engine}, {self.sessions} sessions, repeat {self.repeat + 1}"

    @property
    def stem(self) -> str:
        """The name of its files."""
        return f"{safe_name(self.engine)}.{self.sessions}.{self.repeat}"

    def records(self, out: Path) -> Path:
        """A request a line, as `flashstate replay` writes them."""
        return out / "records" / f"{self.stem}.jsonl"


def safe_name(engine: str) -> str:
    """The engine's name as part of a file's."""
    return "".join(sign if sign.isalnum() or sign in _SAFE else "-" for sign in engine)


def log_name(engine: str, repeat: int) -> str:
    """The file of its server's log, one for all loads of a repeat."""
    return f"{safe_name(engine)}.{repeat}.log"


@dataclass(frozen=True)
class Result:
    """One run. `summary`: of its replay (`replay.totals.summary`).

    `busy`: share of the time in which the engine computed; `prefill`: share of the time that its prefill should have
    taken, by the measured cost. None: not known.
    """

    key: RunKey
    summary: Mapping[str, Any]
    start_s: float | None
    busy: float | None
    prefill: float | None

    def value(self, name: str) -> float | None:
        """A figure by name: a number of the summary, or `ttft_s.p90` for one inside."""
        found: Any = {"busy": self.busy, "prefill": self.prefill} | dict(self.summary)
        for part in name.split("."):
            found = None if found is None else found[part]
        return None if found is None else float(found)

    def as_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Result:
        """What `as_json` gave. Raises KeyError or TypeError."""
        found = cls(**{**values, "key": RunKey(**values["key"])})
        if not isinstance(found.summary, dict):
            raise TypeError(found.summary)
        return found


def prefill_share(records: Path, cost: PrefillCostModel, seconds: float) -> float:
    """Share of the measured seconds that computing the measured prompts takes, by a cost measured elsewhere."""
    total = sum(
        cost.seconds(min(record.cached_tokens, record.prompt_tokens), record.prompt_tokens)
        for record in measured_records(records)
        if record.error is None
    )
    return total / seconds if seconds else 0.0


class Results:
    """The runs so far, in `bench.json`: rewritten whole as each run ends."""

    def __init__(
        self, path: Path, head: Mapping[str, Any], runs: Mapping[RunKey, Result] | None = None
    ) -> None:
        self.path, self.head = path, head
        self.runs = dict(runs or {})

    @classmethod
    def open(cls, path: Path, head: Mapping[str, Any]) -> Results:
        """A new file, or one of the same comparison to go on with. Raises BenchError, OSError."""
        if not path.exists():
            return cls(path, head)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            theirs, runs = dict(document["options"]), [Result.from_json(run) for run in document["runs"]]
            before = {"engines": dict(theirs["engines"]), "sessions": [int(n) for n in theirs["sessions"]]}
        except (ValueError, KeyError, TypeError):
            raise BenchError(f"{path}: is not ours; name another folder with --out") from None
        if (wrong := _differing(theirs, json.loads(json.dumps(head["options"])))) is not None:
            raise BenchError(f"{path}: is of other options ({wrong}); name another folder with --out")
        ours = head["options"]
        grown = {
            "engines": before["engines"] | ours["engines"],
            "sessions": sorted({*before["sessions"], *ours["sessions"]}),
            "repeat": max(int(theirs["repeat"]), ours["repeat"]),
        }
        return cls(path, {**head, "options": {**ours, **grown}}, {run.key: run for run in runs})

    def add(self, result: Result) -> None:
        """Takes a run and writes the file."""
        self.runs[result.key] = result
        self.write({})

    def write(self, found: Mapping[str, Any]) -> None:
        """Writes all of it. `found`: what was made of the runs."""
        runs = [run.as_json() for run in self.runs.values()]
        write_text(self.path, json.dumps({**self.head, **found, "runs": runs}, indent=1) + "\n")


_MAY_GROW: Final = ("sessions", "repeat")
"""A comparison may go on with more loads and repeats, and with other engines."""


def _differing(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str | None:
    """The first option that a comparison cannot change as it goes on."""
    for name in sorted((ours.keys() | theirs.keys()) - set(_MAY_GROW)):
        a, b = theirs.get(name), ours.get(name)
        if name == "engines" and isinstance(a, dict) and isinstance(b, dict):
            a, b = ({key: of[key] for key in sorted(a.keys() & b.keys())} for of in (a, b))
        if a != b and isinstance(a, dict) and isinstance(b, dict):
            inner = next(key for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key))
            name, a, b = inner, a.get(inner), b.get(inner)
        if a != b:
            return f"{name} {a!r} there, {b!r} here"
    return None
