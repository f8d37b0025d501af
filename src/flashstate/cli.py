"""The `flashstate` command."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from flashstate import __version__
from flashstate.bench.command import bench
from flashstate.console import fail
from flashstate.demo.command import demo
from flashstate.economics.command import cost
from flashstate.fit.command import fit
from flashstate.models.size_command import size
from flashstate.replay.command import replay
from flashstate.report.command import report
from flashstate.simulate.agreement_command import check_event_log
from flashstate.simulate.command import simulate
from flashstate.traces.command import app as trace
from flashstate.watch.command import watch

app = typer.Typer(
    name="flashstate",
    help="Prefix caching that works for hybrid-attention models, on an unmodified vLLM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


app.command(name="demo")(demo)
app.command(name="bench")(bench)
app.command(name="replay")(replay)
app.command(name="simulate")(simulate)
app.command(name="check-log")(check_event_log)
app.command(name="report")(report)
app.command(name="watch")(watch)
app.command(name="size")(size)
app.command(name="cost")(cost)
app.command(name="fit")(fit)
app.add_typer(trace)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"flashstate {__version__}")
        raise typer.Exit


@app.command(context_settings=PASS_THROUGH)
def serve(context: typer.Context) -> None:
    """Serve a model like `vllm serve`, resuming hybrid states at exact positions."""
    try:
        from flashstate.plugin.seams import SeamError
        from flashstate.plugin.serve import options_parser
        from flashstate.plugin.serve import serve as run
        from flashstate.plugin.settings import SettingsError
        from flashstate.plugin.support import UnsupportedError
    except ImportError as error:
        fail(f"vLLM is not installed ({error}): pip install 'flashstate[cpu]' or 'flashstate[cuda]'")
    if not context.args or context.args[0] in ("-h", "--help"):
        typer.echo(options_parser().format_help())
        raise typer.Exit(0 if context.args else 2)
    try:
        run(context.args)
    except (SettingsError, UnsupportedError, SeamError) as error:
        fail(str(error), 2)
    except Exception as error:
        # vLLM has logged it in full; what matters is the last line.
        fail(f"the server stopped: {' '.join(str(error).split())[:300] or type(error).__name__}")


@app.command()
def doctor(
    model: Annotated[
        Path | None, typer.Argument(help="A model folder or config.json: what its states cost.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    wheel: Annotated[Path | None, typer.Option(help="Check a downloaded vLLM wheel instead.")] = None,
) -> None:
    """Say what FlashState finds here: versions, seams, what is refused and why."""
    from flashstate.checkup import checkup

    try:
        healthy = checkup(model, wheel, as_json)
    except ValueError as error:
        fail(str(error))
    raise typer.Exit(0 if healthy else 1)


def main() -> None:
    """Entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign shows a question mark
    app()


if __name__ == "__main__":
    main()
