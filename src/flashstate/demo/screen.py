"""Progress in the terminal while the engines run."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from flashstate.replay.record import Record


class Screen:
    """One line an engine: waiting, starting, how far it is, what it has seen. Use it as a context."""

    def __init__(self, console: Console, names: Sequence[str]) -> None:
        self._console = console
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
        self._lines = {
            name: self._progress.add_task(name.ljust(width), start=False, total=None, state="waiting")
            for name in names
        }
        self._seen: list[Record] = []

    def __enter__(self) -> Screen:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def starting(self, name: str) -> None:
        """The engine's server is being started."""
        self._progress.start_task(self._line(name))
        self._progress.update(self._line(name), state="starting the server")
        self._say(f"{name}: starting the server")

    def replaying(self, name: str, total: float, start_s: float) -> None:
        """Its server is up after `start_s` seconds; the bar is full at `total` requests, or seconds."""
        self._seen = []
        self._progress.update(self._line(name), total=total, state=f"server up in {start_s:.0f} s")
        self._say(f"{name}: server up in {start_s:.0f} s, replaying")

    def at(self, name: str, completed: float) -> None:
        """How far the bar is."""
        self._progress.update(self._line(name), completed=completed)

    def saw(self, name: str, record: Record) -> None:
        """A request has ended."""
        self._seen.append(record)
        self._progress.update(self._line(name), state=self._state())

    def finished(self, name: str) -> None:
        """The engine is done."""
        self._progress.update(self._line(name), total=1, completed=1, state=self._state())
        self._progress.stop_task(self._line(name))
        self._say(f"{name}: {self._state()}")

    def _line(self, name: str) -> TaskID:
        return self._lines[name]

    def _state(self) -> str:
        prompt = sum(record.prompt_tokens for record in self._seen)
        cached = sum(record.cached_tokens for record in self._seen)
        failed = sum(record.error is not None for record in self._seen)
        state = f"{len(self._seen)} requests, hit rate {cached / max(prompt, 1):.0%}"
        return f"{state}, {failed} failed" if failed else state

    def _say(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(line, style=None, highlight=False)
