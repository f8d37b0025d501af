"""What a comparison is: the head of its file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from flashstate.bench.machine import machine, versions
from flashstate.bench.options import Options
from flashstate.traces.session import Session

BENCH_FILE: Final = "bench.json"


def head(options: Options, traces: Sequence[Session], command: str) -> dict[str, Any]:
    """Plain values. `options` among them decides whether a run belongs to the comparison. `command`: no passwords."""
    replay = options.replay.parameters(traces, "")
    shared = {key: value for key, value in replay.items() if key not in ("urls", "model", "sessions")}
    return {
        "command": command,
        "date": datetime.now().astimezone().isoformat("T", "seconds"),
        "machine": machine(),
        "versions": versions(),
        "options": {**options.as_json(), "replay": shared},
    }
