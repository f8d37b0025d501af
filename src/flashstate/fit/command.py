"""The command `flashstate fit`."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from flashstate.console import CTRL_C, fail
from flashstate.files import write_text
from flashstate.fit.document import as_json
from flashstate.fit.judge import fit as fit_prefills
from flashstate.fit.measure import MeasureError, Prefill, measure, requests
from flashstate.fit.plan import plan
from flashstate.fit.server import ServerError, ServerInfo, ask, check_address
from flashstate.fit.show import show
from flashstate.replay.client import CompletionClient

_MOST_ROUNDS: Final = 1000
_LONGEST: Final = 65_536
_LONGEST_UNTOLD: Final = 8192
"""Where the server does not say what it takes."""


def fit(
    url: Annotated[str, typer.Option(help="An OpenAI-compatible server that does nothing else meanwhile.")],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="What --prefill-cost of serve and simulate takes.")
    ] = Path("prefill-cost.json"),
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="As the server calls it (default: its first).")
    ] = None,
    longest: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS", help=f"Of a prompt (default: what the server takes, {_LONGEST:,} at most)."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(metavar="N", help="Times that every prefill is measured.")] = 7,
) -> None:
    """Measure prefill on a server and fit its cost model, T(a, b) = D (b - a) + E (b^2 - a^2)."""
    try:
        _check(out, rounds)
        server, prefills = asyncio.run(_measure(url, model, longest, rounds))
        found = fit_prefills(prefills)
        write_text(out, json.dumps(as_json(found, prefills, server), indent=1, allow_nan=False) + "\n")
    except (ServerError, MeasureError, ValueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"--out {out}: {error.strerror or error}: name a file in a folder that can be written")
    except KeyboardInterrupt:
        fail("interrupted; nothing was written", CTRL_C)
    show(found, out, Console())


def _check(out: Path, rounds: int) -> None:
    """What would otherwise fail only after minutes of measuring. Raises ValueError."""
    if not 1 <= rounds <= _MOST_ROUNDS:
        raise ValueError(f"--rounds {rounds}: must be from 1 to {_MOST_ROUNDS}")
    folder = next(folder for folder in out.absolute().parents if folder.exists())
    if out.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"--out {out}: cannot be written: name a file in a folder that can")


async def _measure(
    url: str, model: str | None, longest: int | None, rounds: int
) -> tuple[ServerInfo, list[Prefill]]:
    """Raises ServerError, MeasureError, and ValueError for a length that cannot be measured."""
    check_address(url)
    async with CompletionClient(url, model or "") as client:
        server = await ask(client, model)
    chains = plan(_longest(server, longest))
    async with CompletionClient(server.url, server.model) as client:
        with _progress() as progress:
            task = progress.add_task(f"prefills on {server.model}", total=requests(chains, rounds))
            # Seeded by the system: prompts of an earlier fit must not be in the cache.
            random = np.random.default_rng()
            return server, await measure(client, chains, rounds, random, lambda: progress.advance(task))


def _longest(server: ServerInfo, asked: int | None) -> int:
    """Prompt tokens; one more is generated."""
    most = None if server.most_tokens is None else server.most_tokens - 1
    if asked is None:
        return _LONGEST_UNTOLD if most is None else min(most, _LONGEST)
    if most is not None and asked > most:
        raise ValueError(f"--longest {asked}: {server.model} takes prompts of {most} tokens at most")
    return asked


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
