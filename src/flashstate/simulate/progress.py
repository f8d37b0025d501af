"""How far a sweep is, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from flashstate.simulate.result import RunKey


class RunProgress:
    """A bar that weighs runs by their sessions, as their times go by that. Use it as a context.

    It is drawn when told something, never by a thread: the sweep forks.
    """

    def __init__(self, console: Console, keys: Sequence[RunKey], missing: Sequence[RunKey]) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[runs]}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[running]}", style="dim"),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )
        self._total = len(keys)
        self._done = len(keys) - len(missing)
        self._task = self._progress.add_task(
            "", total=sum(key.sessions for key in missing), runs=self._runs(), running=""
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def running(self, keys: Sequence[RunKey]) -> None:
        """These runs are going on."""
        names = ", ".join(f"{key.policy} {key.sessions}" for key in keys)
        self._progress.update(self._task, running=names)
        self._progress.refresh()

    def ended(self, key: RunKey) -> None:
        """A run is over, well or not."""
        self._done += 1
        self._progress.update(self._task, advance=key.sessions, runs=self._runs())

    def _runs(self) -> str:
        return f"{self._done}/{self._total} runs"
