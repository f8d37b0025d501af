"""Reads rates from what `flashstate demo` and `flashstate simulate --json` write, without importing either."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from flashstate.economics.fields import FieldError, Fields
from flashstate.economics.serving import RateError, Rates, Serving
from flashstate.files import check_regular

_SIMULATION: Final = "flashstate simulate"
_FORMAT: Final = 1
_WAY_OUT: Final = "write the file anew with `flashstate demo` or `flashstate simulate --clock engine --json`"
_NO_RATES: Final = (
    "User cost only: results[0].served.prompt_tokens_per_min is missing, as the recorded clock has no throughput. "
    "For revenue and profit, simulate with --clock engine."
)


class ResultsError(ValueError):
    """A results file that cannot be used. One line: the file, the field, the way out."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a results file holds. `notes`: sentences on what had to be assumed, or is not known."""

    servings: tuple[Serving, ...]
    notes: tuple[str, ...] = ()


def read_results(path: Path, gpus: int | None) -> Measured:
    """The servers of a results file, in its order. Raises ResultsError.

    `gpus`: of one engine, for the demo's file, which names none; a simulation names its own.
    """
    try:
        check_regular(path)
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ResultsError(f"{path}: not JSON ({error})") from None
    try:
        top = Fields.of(document)
        if top.values.get("kind") == _SIMULATION:
            return _simulation(top, gpus)
        return _demo(top, gpus)
    except ResultsError as error:
        raise ResultsError(f"{path}: {error}") from None
    except (FieldError, RateError) as error:
        raise ResultsError(f"{path}: {error}: {_WAY_OUT}") from None


def _demo(top: Fields, gpus: int | None) -> Measured:
    """Each engine is measured as a whole."""
    engines = top.part("engines")
    servings = []
    for name in engines.values:
        engine = engines.part(name)
        with _in(engine):
            rates = _rates(engine, 1 if gpus is None else gpus)
            servings.append(Serving(name, engine.number("hit_rate"), rates))
    if not servings:
        raise FieldError("engines is empty")
    note = "The file names no GPUs: its machine counts as one. --gpus N says otherwise."
    return Measured(tuple(servings), (note,) if gpus is None else ())


def _simulation(top: Fields, gpus: int | None) -> Measured:
    """Runs of one policy and load are taken together, over seeds. Their rates are a GPU's."""
    if top.get("format") != _FORMAT:
        raise FieldError(f"format is {top.get('format')!r}: must be {_FORMAT}")
    runs: dict[tuple[str, int], list[Fields]] = {}
    for row in _rows(top):
        key = row.part("key")
        runs.setdefault((key.text("policy"), key.whole("sessions")), []).append(row)
    setup = top.part("setup")
    if setup.text("clock") == "recorded":
        servings = [_together(rows, *key, None) for key, rows in runs.items()]
        return Measured(tuple(servings), (_NO_RATES,))
    found = setup.part("serving").part("timing").whole("gpus")
    if gpus not in (None, found):
        raise ResultsError(f"gpus {gpus}: the file has {found} (setup.serving.timing.gpus): leave out --gpus")
    return Measured(tuple(_together(rows, *key, found) for key, rows in runs.items()))


def _rows(top: Fields) -> Sequence[Fields]:
    rows = top.get("results")
    if not isinstance(rows, list) or not rows:
        raise FieldError("results: must be a list of one or more")
    return [Fields.of(row, f"results[{index}]") for index, row in enumerate(rows)]


def _together(rows: Sequence[Fields], policy: str, sessions: int, gpus: int | None) -> Serving:
    """Tokens are added up over seeds, so that revenue is the mean of the runs' and not one of mean rates."""
    prompt, resumed = (sum(row.number(f"{kind}_tokens") for row in rows) for kind in ("prompt", "resumed"))
    hit_rate = resumed / prompt if prompt else 0.0
    with _in(rows[0]):
        if gpus is None:
            return Serving(policy, hit_rate, None, sessions)
        a_gpu = [_rates(row.part("served"), 1) for row in rows]
        return Serving(
            policy,
            hit_rate,
            Rates(
                gpus * fmean(rates.prompt_tokens_per_minute for rates in a_gpu),
                gpus * fmean(rates.output_tokens_per_minute for rates in a_gpu),
                gpus,
            ),
            sessions,
        )


def _rates(fields: Fields, gpus: int) -> Rates:
    """Demo and simulation call them alike."""
    return Rates(fields.number("prompt_tokens_per_min"), fields.number("output_tokens_per_min"), gpus)


@contextmanager
def _in(fields: Fields) -> Iterator[None]:
    """Says where in the file a value is out of range."""
    try:
        yield
    except RateError as error:
        raise RateError(f"{fields.place}: {error}") from None
