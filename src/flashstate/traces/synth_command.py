"""The commands `flashstate trace synth` and `flashstate trace fit`."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import track

from flashstate.console import fail
from flashstate.traces.mooncake_writer import write_mooncake
from flashstate.traces.parquet_writer import write_parquet
from flashstate.traces.read import read_sessions
from flashstate.traces.session import Session, TraceError
from flashstate.traces.synth.fit import FitError, fit
from flashstate.traces.synth.generate import MOST_SESSIONS, generate
from flashstate.traces.synth.params import ParamsError, claude_code, load_params, save_params

_LINES: Final = (".jsonl", ".jsonl.gz")


class SynthFormat(StrEnum):
    """What `synth` writes."""

    PARQUET = "parquet"
    MOONCAKE = "mooncake"


def synth(
    sessions: Annotated[int, typer.Option(metavar="N", help="How many sessions.")],
    out: Annotated[Path, typer.Option(metavar="PATH", help="A new folder (parquet) or file (mooncake).")],
    seed: Annotated[int, typer.Option(metavar="S", help="The same seed makes the same sessions.")] = 0,
    params: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What `flashstate trace fit` wrote (default: Claude Code's)."),
    ] = None,
    to: Annotated[
        SynthFormat | None,
        typer.Option("--format", help="Default: mooncake for a .jsonl file, else parquet."),
    ] = None,
) -> None:
    """Make a workload of any size: sessions drawn from what was recorded of real ones.

    They keep what matters to a prefix cache: how prompts grow, what edits cut, how long gaps and outputs are, and what
    goes together. No recorded session is in them.
    """
    if not 1 <= sessions <= MOST_SESSIONS:
        fail(
            f"--sessions is {sessions}: it must be 1 to {MOST_SESSIONS:,}; for more, write several with other seeds"
        )
    if to is None:
        to = SynthFormat.MOONCAKE if out.name.endswith(_LINES) else SynthFormat.PARQUET
    try:
        drawn = _shown(generate(load_params(params) if params else claude_code(), sessions, seed), sessions)
        written = write_parquet(drawn, out) if to is SynthFormat.PARQUET else write_mooncake(drawn, out)
    except (TraceError, ParamsError) as error:
        fail(str(error))
    typer.echo(f"{out}: {written:,} sessions", err=True)


def fit_command(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Traces in any format.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the parameters.")],
    source: Annotated[str, typer.Option(help="What they were fitted to, for the file.")] = "",
) -> None:
    """Fit the parameters of `synth` to traces: quantiles, shares and correlations, no trace content."""
    try:
        if out.exists():
            raise ParamsError(f"{out}: exists already: name another, or remove it")
        recorded = (session for path in paths for session in read_sessions(path))
        params = fit(recorded, source or ", ".join(path.name for path in paths))
        save_params(params, out)
    except (TraceError, FitError, ParamsError) as error:
        fail(str(error))
    typer.echo(f"{out}: {params.sessions:,} sessions, {params.turns:,} requests", err=True)


def _shown(sessions: Iterator[Session], count: int) -> Iterator[Session]:
    """With a progress bar where somebody may watch."""
    console = Console(stderr=True)
    yield from track(
        sessions, "drawing", total=count, console=console, transient=True, disable=not console.is_terminal
    )
