"""The command `flashstate cost`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flashstate.console import fail
from flashstate.economics.accounts import account
from flashstate.economics.options import PresetOption, PricesOption, chosen_prices
from flashstate.economics.results_file import Measured, read_results
from flashstate.economics.serving import Rates, Serving
from flashstate.economics.show import as_json, show


def cost(
    results: Annotated[
        Path | None,
        typer.Argument(
            metavar="RESULTS", help="Results of `flashstate demo` or `flashstate simulate --json`."
        ),
    ] = None,
    prompt_tokens_per_minute: Annotated[
        float | None, typer.Option(metavar="N", help="Instead of RESULTS: of one engine, cached ones too.")
    ] = None,
    output_tokens_per_minute: Annotated[
        float | None, typer.Option(metavar="N", help="Instead of RESULTS: of one engine.")
    ] = None,
    hit_rate: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Instead of RESULTS: cached prompt tokens, 0 to 1.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(metavar="N", help="GPUs of one engine (default: the file's, or 1).")
    ] = None,
    prices: PricesOption = None,
    preset: PresetOption = None,
    vary: Annotated[
        bool, typer.Option("--sensitivity", help="Profit over GPU prices and cached-token discounts, too.")
    ] = False,
    in_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what serving earns: user cost per 1M input tokens, revenue and profit a GPU-hour."""
    rates = {
        "--prompt-tokens-per-minute": prompt_tokens_per_minute,
        "--output-tokens-per-minute": output_tokens_per_minute,
        "--hit-rate": hit_rate,
    }
    try:
        at = chosen_prices(prices, preset)
        measured = _measured(results, rates, gpus)
    except ValueError as error:
        fail(str(error))
    accounts = [account(at, serving) for serving in measured.servings]
    if vary and all(found.earnings is None for found in accounts):
        fail(f"--sensitivity: profit needs rates. {' '.join(measured.notes)}")
    if in_json:
        typer.echo(json.dumps(as_json(at, accounts, measured.notes, vary=vary), indent=2, allow_nan=False))
    else:
        show(at, accounts, measured.notes, vary=vary, console=Console())


def _measured(results: Path | None, rates: dict[str, float | None], gpus: int | None) -> Measured:
    """Raises ValueError."""
    if results is not None:
        for name, value in rates.items():
            if value is not None:
                raise ValueError(f"{name} {value:g}: {results} has the rates: give one or the other")
        return read_results(results, gpus)
    missing = [name for name, value in rates.items() if value is None]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing: give a results file, or {', '.join(rates)}")
    prompt, output, hit_rate = (value or 0.0 for value in rates.values())
    return Measured((Serving("given rates", hit_rate, Rates(prompt, output, 1 if gpus is None else gpus)),))
