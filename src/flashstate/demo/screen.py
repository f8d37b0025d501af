"""Progress in the terminal while the engines run."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from flashstate.bench.result import Result, RunKey
from flashstate.replay.totals import Totals


class EnginesScreen:
    """One line an engine: waiting, starting, how far it is, what it has seen. Use it as a context.

    `total`: what its bar counts to, seconds if `by_time`, else requests.
    """

    def __init__(self, console: Console, names: Sequence[str], total: float, *, by_time: bool) -> None:
        self._console, self._total, self._by_time = console, total, by_time
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}", style="dim"),
            TimeElapsedColumn(),
            console=console,
            transient=not console.is_terminal,
        )
        width = max(map(len, names))
        self._lines: dict[str, TaskID] = {
            name: self._progress.add_task(name.ljust(width), start=False, total=None, state="waiting")
            for name in names
        }

    def __enter__(self) -> EnginesScreen:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def starting(self, engine: str) -> None:
        """The engine's server is being started."""
        self._progress.start_task(self._lines[engine])
        self._say(engine, "starting the server")

    def serving(self, engine: str, start_s: float | None) -> None:
        """Its server is up after `start_s` seconds."""
        self._progress.update(self._lines[engine], total=self._total)
        self._say(engine, f"server up in {start_s or 0.0:.0f} s, replaying")

    def at(self, key: RunKey, now_s: float, totals: Totals) -> None:
        """How far a run is."""
        completed = now_s if self._by_time else totals.requests
        state = _state(totals.requests, totals.cached_tokens, totals.prompt_tokens, totals.failed)
        self._progress.update(self._lines[key.engine], completed=completed, state=state)

    def finished(self, result: Result) -> None:
        """A run has ended as it should."""
        requests, hits = result.summary["requests"], result.summary["hit_rate"]
        self._end(result.key, _state(requests["measured"], hits or 0.0, 1.0, requests["failed"]))

    def failed(self, key: RunKey, reason: str) -> None:
        """A run's figures may not be used."""
        self._end(key, f"not valid: {reason}")

    def _end(self, key: RunKey, state: str) -> None:
        line = self._lines[key.engine]
        self._progress.update(line, total=1, completed=1)
        self._progress.stop_task(line)
        self._say(key.engine, state)

    def _say(self, engine: str, state: str) -> None:
        self._progress.update(self._lines[engine], state=state)
        if not self._console.is_terminal:
            self._console.print(f"{engine}: {state}", style=None, highlight=False, markup=False)


def _state(requests: int, cached: float, prompt: float, failed: int) -> str:
    state = f"{requests} requests, hit rate {cached / max(prompt, 1):.0%}"
    return f"{state}, {failed} failed" if failed else state
