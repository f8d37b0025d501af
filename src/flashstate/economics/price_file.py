"""Price presets in YAML: the shipped file, or the user's in the same form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from flashstate.economics.fields import FieldError, Fields
from flashstate.economics.prices import PriceError, Prices
from flashstate.files import check_regular

_TOP: Final = ("presets",)
_KEYS: Final = ("date", "source", "input", "cached_input", "output", "gpu_hour")


def shipped_presets() -> Mapping[str, Prices]:
    """The presets that come with flashstate, by name, the default first."""
    return _presets((files("flashstate.economics") / "prices.yaml").read_text(encoding="utf-8"))


def read_presets(path: Path) -> Mapping[str, Prices]:
    """The presets of a file of the user's, by name, in its order. Raises PriceError, which names the file."""
    try:
        check_regular(path)
        return _presets(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PriceError(f"{path}: {error.strerror or error}: name another --prices") from None
    except yaml.YAMLError as error:
        raise PriceError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise PriceError(f"{path}: nested too deeply: must be presets of prices") from None
    except ValueError as error:  # of ours, of a date that is none, of bytes that are no UTF-8
        raise PriceError(f"{path}: {error}") from None


def choose(presets: Mapping[str, Prices], name: str | None) -> Prices:
    """The preset called `name`; the first without. Raises PriceError for an unknown one."""
    if name is None:
        return next(iter(presets.values()))
    if name not in presets:
        raise PriceError(
            f"preset {name!r}: unknown; one of {', '.join(presets)}, or a file of yours with --prices"
        )
    return presets[name]


def _presets(text: str) -> Mapping[str, Prices]:
    _refuse_duplicates(yaml.compose(text, Loader=yaml.SafeLoader))
    top = Fields.of(yaml.safe_load(text))
    _refuse_unknown(top, _TOP)
    named = top.part("presets")
    if not named.values:
        raise FieldError("presets is empty: must hold one or more")
    return {name: _prices(name, named.part(name)) for name in named.values}


def _prices(name: str, fields: Fields) -> Prices:
    _refuse_unknown(fields, _KEYS)
    about = _date(fields), fields.text("source")
    amounts = [fields.number(key) for key in _KEYS[2:]]
    try:
        return Prices(name, *about, *amounts)
    except PriceError as error:
        raise PriceError(fields.path(str(error))) from None


def _date(fields: Fields) -> date:
    value = fields.get("date")
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    elif isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise FieldError(f"{fields.path('date')} is {str(value)!r}: must be a day, such as 2026-11-09")


def _refuse_unknown(fields: Fields, known: tuple[str, ...]) -> None:
    for key in fields.values:
        if key not in known:
            raise FieldError(f"{fields.path(key)}: unknown; one of {', '.join(known)}")


def _refuse_duplicates(node: Any) -> None:
    """YAML takes the last of two keys of one name; whoever edits prices should not have to find that out."""
    for place, mapping in _mappings(node, depth=3):
        seen = set()
        for key, _ in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # refused when its value is made
            if key.value in seen:
                raise FieldError(f"{'.'.join([*place, key.value])!a}: is there twice; remove one")
            seen.add(key.value)


def _mappings(node: Any, depth: int, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if depth and isinstance(node, yaml.MappingNode):
        yield place, node
        for key, value in node.value:
            yield from _mappings(value, depth - 1, (*place, str(key.value)))
