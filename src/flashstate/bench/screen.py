"""Progress in the terminal, and a line for each run that ended."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from flashstate.bench.result import Result, RunKey
from flashstate.replay.totals import Totals

_MINUTE_S: Final = 60


class Screen(Protocol):
    """Who is told how runs go."""

    def starting(self, engine: str) -> None:
        """The engine's server is being started, or looked for."""

    def serving(self, engine: str, start_s: float | None) -> None:
        """It is up, after so many seconds; None: it was there."""

    def at(self, key: RunKey, now_s: float, totals: Totals) -> None:
        """How far a run is."""

    def finished(self, result: Result) -> None:
        """A run has ended as it should."""

    def failed(self, key: RunKey, reason: str) -> None:
        """A run's figures may not be used."""


class RunsScreen:
    """One bar for all runs. Use it as a context.

    `runs`: how many there are to make; `seconds`: what each takes, its server's start apart (None: nobody knows).
    """

    def __init__(self, console: Console, runs: int, seconds: float | None) -> None:
        self._console, self._seconds, self._done = console, seconds, 0
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[said]}", style="dim"),
            TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self._task = self._progress.add_task("", total=runs * (seconds or 1.0), said="")

    def __enter__(self) -> Screen:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def starting(self, engine: str) -> None:
        """The engine's server is being started, or looked for."""
        self._progress.update(self._task, description=f"{escape(engine)}: starting", said="")

    def serving(self, engine: str, start_s: float | None) -> None:
        """It is up."""
        self._progress.update(self._task, description=f"{escape(engine)}: up", said="")

    def at(self, key: RunKey, now_s: float, totals: Totals) -> None:
        """How far a run is."""
        said = f"{totals.requests:,} requests, {totals.failed + totals.failed_outside:,} failed"
        self._progress.update(
            self._task,
            completed=self._done if self._seconds is None else self._done * self._seconds + now_s,
            description=escape(str(key)),
            said=said,
        )

    def finished(self, result: Result) -> None:
        """A run has ended as it should."""
        self._done += 1
        key, summary = result.key, result.summary
        prompt, ttft, hits = summary["prompt_tokens_per_s"], summary["ttft_s"], summary["hit_rate"]
        self._console.print(
            f"{escape(str(key))}: {_MINUTE_S * (prompt or 0):,.0f} prompt tokens a minute"
            + ("" if hits is None else f", hit rate {hits:.0%}")
            + ("" if ttft is None else f", TTFT p90 {ttft['p90']:.2f} s"),
            highlight=False,
        )

    def failed(self, key: RunKey, reason: str) -> None:
        """A run's figures may not be used."""
        self._done += 1
        self._console.print(f"[yellow]not valid:[/] {escape(str(key))}: {escape(reason)}", highlight=False)
