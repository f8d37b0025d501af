"""The results of a sweep: a JSON document of one setup and its runs; beside it, while runs go on, OUT.partial.

OUT.partial is the document without its results, on one line, then a result a line: what is done stays done. Results
of the same setup add up in OUT.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from flashstate.files import check_regular, hold, replacing
from flashstate.report.simulation import simulation
from flashstate.simulate.result import RunKey, RunResult
from flashstate.simulate.setup import differences

KIND: Final = "flashstate simulate"
FORMAT: Final = 1

_NOT_OURS: Final = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""What comes of reading something else, or an edited file."""


class ResultsFileError(Exception):
    """A file that cannot be used. One line: the file, the reason, the way out."""


class Results:
    """The runs of one setup, in memory. `about` is what the document says beside: date, machine, command."""

    def __init__(self, setup: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        # As it is read back: tuples become lists.
        self.head: dict[str, Any] = json.loads(
            json.dumps({"kind": KIND, "format": FORMAT, **about, "setup": setup})
        )
        self.done: dict[RunKey, RunResult] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def document(self) -> dict[str, Any]:
        """Everything, by load, seed and policy."""
        ordered = sorted(self.done.values(), key=lambda r: (r.key.sessions, r.key.seed, r.key.policy))
        return {**self.head, "results": [result.as_json() for result in ordered]}

    def add(self, result: RunResult) -> None:
        """Keeps a run."""
        self.done[result.key] = result

    def finish(self) -> None:
        """No more runs will come."""


class ResultsFile(Results):
    """Keeps them in `path`, each as it comes, with those that are there already.

    While used as a context it holds the file against other writers.
    """

    def __init__(self, path: Path, setup: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        super().__init__(setup, about)
        if not path.name:
            raise ResultsFileError("--json: names no file")
        self.path = path
        self.partial = path.with_name(path.name + ".partial")

    def __enter__(self) -> Self:
        """Reads what is there. Raises ResultsFileError: of another setup, not ours, or someone is writing to it."""
        for path in (self.path, self.partial):
            try:
                check_regular(path)
            except OSError as error:
                raise ResultsFileError(f"{path}: {error.strerror}: name another --json") from None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.partial.open("a+", encoding="utf-8")
        try:
            if not hold(self._file):
                raise ResultsFileError(f"{self.partial}: another run is writing to it")
            if self.path.exists():
                self._take_document(self.path.read_bytes())
            self._go_on()
        except BaseException:
            self._file.close()
            if self.partial.stat().st_size == 0:
                self.partial.unlink()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, result: RunResult) -> None:
        super().add(result)
        self._write(result.as_json())

    def finish(self) -> None:
        """Writes the document, whole or not at all, and removes the partial one."""
        text = json.dumps(self.document(), indent=1, allow_nan=False) + "\n"
        with replacing(self.path) as part:
            part.write_text(text, encoding="utf-8")
        self.partial.unlink()

    def _go_on(self) -> None:
        """Takes what is in the partial file, but for a last line that broke off; a new one gets its first line."""
        self._file.seek(0)
        text = self._file.read()
        whole = text[: text.rfind("\n") + 1]
        if len(whole) < len(text):
            self._file.truncate(len(whole.encode()))
        if whole:
            self._take_lines(whole.splitlines())
        else:
            self._write(self.head)

    def _write(self, value: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(value, allow_nan=False) + "\n")
        self._file.flush()

    def _take_document(self, text: bytes) -> None:
        try:
            document = json.loads(text)
            self._take(self.path, document, document["results"])
        except _NOT_OURS:
            raise self._not_ours(self.path) from None

    def _take_lines(self, lines: list[str]) -> None:
        try:
            head, *rows = [json.loads(line) for line in lines]
            self._take(self.partial, head, rows)
        except _NOT_OURS:
            raise self._not_ours(self.partial) from None

    def _take(self, path: Path, head: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
        if (head["kind"], head["format"]) != (KIND, FORMAT):
            raise ValueError(head["kind"])
        results = [RunResult.from_json(row) for row in rows]
        simulation({**head, "results": rows})  # its figures are numbers, for the tables to come
        changed = differences(self.head["setup"], head["setup"])
        if changed:
            raise ResultsFileError(
                f"{path}: holds {len(results)} runs of another setup, other in {', '.join(changed)}: "
                "name another --json, or remove it"
            )
        self.done |= {result.key: result for result in results}

    def _not_ours(self, path: Path) -> ResultsFileError:
        return ResultsFileError(
            f"{path}: not a results file of this version: name another --json, or remove it"
        )
