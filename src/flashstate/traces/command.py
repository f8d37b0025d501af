"""The commands `flashstate trace ...`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape

from flashstate.console import fail
from flashstate.traces.mooncake_writer import write_mooncake
from flashstate.traces.parquet_writer import write_parquet
from flashstate.traces.plot import check_plot, write_plot
from flashstate.traces.read import read_sessions
from flashstate.traces.scale import scaled
from flashstate.traces.session import Session, TraceError
from flashstate.traces.stats.collect import Collector
from flashstate.traces.stats.show import as_json, show
from flashstate.traces.synth_command import fit_command, synth

app = typer.Typer(
    name="trace", help="Look at recorded agent sessions and convert them.", no_args_is_help=True
)
app.command()(synth)
app.command("fit")(fit_command)

SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out broken records, and count them.")]

_SHOWN_ERRORS: Final = 10
_SHOWN_EVERY: Final = 100


class Format(StrEnum):
    """What `convert` writes."""

    PARQUET = "parquet"
    MOONCAKE = "mooncake"


@app.command()
def stats(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Traces: several stand side by side.")
    ],
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the distributions: FILE.svg or FILE.html.")
    ] = None,
    skip_bad: SkipBad = False,
) -> None:
    """Say what is in traces: sizes, distributions, context edits, oddities.

    PATH is Weka JSON (a file, a folder, or JSONL with a session a line), Mooncake JSONL, either with .gz, or a
    folder of our Parquet tables.
    """
    reader = _Reader(skip_bad)
    try:
        if plot is not None:
            check_plot(plot)
        sets = {name: Collector().add_all(reader.read(path)) for name, path in _named(paths).items()}
        if plot is not None:
            write_plot(plot, sets)
    except TraceError as error:
        fail(str(error))
    if json_output:
        typer.echo(json.dumps(as_json(sets), indent=2))
    else:
        show(sets, Console())
    reader.report()


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="Traces, in any format that `stats` reads.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder (parquet) or file (mooncake).")],
    to: Annotated[Format, typer.Option(help="The format to write.")],
    open_loop: Annotated[
        bool, typer.Option("--open-loop", help="mooncake: rows without sessions, at their recorded times.")
    ] = False,
    token_scale: Annotated[float, typer.Option(metavar="X", help="Divides prompts and outputs.")] = 1.0,
    time_scale: Annotated[float, typer.Option(metavar="X", help="Divides times and waits.")] = 1.0,
    skip_bad: SkipBad = False,
) -> None:
    """Write traces in another format, as recorded or scaled to a small machine.

    Parquet keeps everything. Mooncake JSONL is for AIPerf (--custom-dataset-type mooncake_trace --isl-block-size 64;
    up to 0.13 only with --open-loop): it keeps lengths, shared prefixes and waits; a sub-agent becomes a session of
    its own, and server times, stop reasons and models are lost.
    """
    if open_loop and to is not Format.MOONCAKE:
        fail("--open-loop is for --to mooncake")
    for option, factor in (("--token-scale", token_scale), ("--time-scale", time_scale)):
        if not 0 < factor < math.inf:
            fail(f"{option} {factor:g}: must be above 0")
    reader = _Reader(skip_bad)
    sessions = reader.read(source)
    if (token_scale, time_scale) != (1.0, 1.0):
        sessions = (scaled(session, token_scale, time_scale) for session in sessions)
    try:
        if to is Format.PARQUET:
            written = write_parquet(sessions, target)
        else:
            written = write_mooncake(sessions, target, open_loop)
    except TraceError as error:
        fail(str(error))
    typer.echo(f"{target}: {written:,} sessions", err=True)
    reader.report()


class _Reader:
    """Says how far it is; counts broken records and shows the first of them, or lets them end the command."""

    def __init__(self, skip: bool) -> None:
        self._skip = skip
        self._count = 0

    def read(self, path: Path) -> Iterator[Session]:
        """All sessions of `path`. Raises TraceError if there is none."""
        found = 0
        with Console(stderr=True).status(f"reading {escape(str(path))}") as status:
            for session in read_sessions(path, self._add if self._skip else None):
                found += 1
                if found % _SHOWN_EVERY == 0:
                    status.update(f"reading {escape(str(path))}: {found:,} sessions")
                yield session
        if not found:
            raise TraceError(str(path), "", "holds no session that can be read")

    def _add(self, error: TraceError) -> None:
        self._count += 1
        if self._count <= _SHOWN_ERRORS:
            typer.secho(f"skipped: {error}", fg="yellow", err=True)

    def report(self) -> None:
        """Says how many were left out, if any."""
        if self._count:
            typer.secho(f"{self._count:,} broken records skipped", fg="yellow", err=True)


def _named(paths: Iterable[Path]) -> dict[str, Path]:
    """Each path by its last part, or in full where two share that."""
    paths = list(paths)
    names = [path.name for path in paths]
    return {path.name if names.count(path.name) == 1 and path.name else str(path): path for path in paths}
