"""`flashstate doctor`: the diagnosis and a model's sizes, on one screen or as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flashstate.models.model_file import read_model
from flashstate.plugin.doctor import Diagnosis, SeamState, diagnose, diagnose_wheel


def checkup(model: Path | None, wheel: Path | None, as_json: bool) -> bool:
    """Print what was found. True if nothing is wrong. Raises ValueError for a file that cannot be read."""
    sizes = None if model is None else model_sizes(model)
    if wheel is not None:
        seams = diagnose_wheel(wheel)
        _print({"wheel": str(wheel), "seams": [asdict(seam) for seam in seams]}, _seam_table(seams), as_json)
        return not any(seam.problem for seam in seams)
    diagnosis = diagnose()
    if as_json:
        _print({**asdict(diagnosis), "model": sizes}, None, as_json)
    else:
        _show(diagnosis, sizes)
    return not diagnosis.problems


def model_sizes(model: Path) -> dict[str, Any]:
    """What one checkpoint of `model` costs, and the smallest prompt worth caching, from its config.json.

    Raises ValueError.
    """
    found = read_model(model).geometry()
    return {
        "checkpoint_bytes": found.checkpoint_bytes,
        "kv_bytes_per_token": found.kv_bytes_per_token,
        "checkpoint_worth_tokens": found.checkpoint_worth_tokens,
        "smallest_block_tokens": found.smallest_block_tokens,
        "blocks_per_checkpoint": found.checkpoint_blocks,
        # The state after n tokens serves prompts of n + 1 and more.
        "smallest_cacheable_prompt_tokens": 1,
        "stock_smallest_cacheable_prompt_tokens": found.smallest_block_tokens + 1,
    }


def _print(value: dict[str, Any], table: Table | None, as_json: bool) -> None:
    if as_json or table is None:
        print(json.dumps(value, indent=2))  # noqa: T201
    else:
        Console().print(table)


def _seam_table(seams: list[SeamState]) -> Table:
    table = Table("seam", "use", "state", title="Where FlashState takes hold of vLLM", title_justify="left")
    for seam in seams:
        state = "[green]ok[/]" if seam.problem is None else f"[red]{escape(seam.problem)}[/]"
        table.add_row(seam.name, seam.use, state)
    return table


def _show(diagnosis: Diagnosis, sizes: dict[str, Any] | None) -> None:
    console = Console()
    versions = ", ".join(f"{name} {version or 'missing'}" for name, version in diagnosis.versions.items())
    console.print(f"[bold]Versions[/]  {versions}")
    policy = f", eviction policy {diagnosis.policy}" if diagnosis.policy else ""
    console.print(
        f"[bold]Mode[/]      {diagnosis.mode}{policy} (FLASHSTATE in the environment; serve sets it)"
    )
    hooked = ", ".join(diagnosis.hooked) or "nothing (it is off)"
    console.print(f"[bold]Replaced in this process[/]  {hooked}")
    if diagnosis.seams:
        console.print(_seam_table(diagnosis.seams))
    console.print("[bold]Refused at start[/]")
    for reason in diagnosis.refused:
        console.print(f"  {escape(reason)}", highlight=False)
    for note in diagnosis.notes:
        console.print(f"[bold]Note[/]  {escape(note)}", highlight=False)
    if sizes is not None:
        _show_sizes(console, sizes)
    for problem in diagnosis.problems:
        console.print(f"[red]Problem[/]  {escape(problem)}")
    if not diagnosis.problems:
        console.print("[green]Nothing is wrong.[/]")


def _show_sizes(console: Console, sizes: dict[str, Any]) -> None:
    console.print(
        f"[bold]Model[/]  a checkpoint is {sizes['checkpoint_bytes'] / 1e6:.1f} MB, as much as "
        f"{sizes['checkpoint_worth_tokens']} tokens of KV; it takes {sizes['blocks_per_checkpoint']} blocks of at "
        f"least {sizes['smallest_block_tokens']} tokens.\n"
        f"       Smallest prompt whose next turn resumes: {sizes['smallest_cacheable_prompt_tokens']} token "
        f"(stock vLLM: {sizes['stock_smallest_cacheable_prompt_tokens']})."
    )
