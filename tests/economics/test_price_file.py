from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from flashstate.economics.price_file import choose, read_presets, shipped_presets
from flashstate.economics.prices import PriceError
from tests.economics.make import PRESET


def make_file(folder: Path, presets: object) -> Path:
    path = folder / "prices.yaml"
    path.write_text(yaml.safe_dump({"presets": presets}))
    return path


def test_every_shipped_preset_is_dated_and_sourced() -> None:
    presets = shipped_presets()
    assert presets
    for name, prices in presets.items():
        assert prices.name == name and prices.source
        assert prices.date.year >= 2026


def test_a_file_of_the_users_in_its_own_order(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    entry = "{date: 2026-11-30, source: made up, input: 1, cached_input: 0.25, output: 4, gpu_hour: %s}"
    path.write_text(f"presets:\n  zebra: {entry % 2}\n  ant: {entry % 3}\n")
    presets = read_presets(path)
    assert (choose(presets, None).name, choose(presets, "ant").gpu_hour) == ("zebra", 3.0)
    with pytest.raises(PriceError, match=r"^preset 'bee': unknown; one of zebra, ant, or a file"):
        choose(presets, "bee")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("gpu_hour", -1, "presets.mine.gpu_hour -1: must be from 0 to 1,000,000 dollars"),
        ("output", float("nan"), "presets.mine.output nan: must be from 0"),
        ("input", float("inf"), "presets.mine.input inf: must be from 0"),
        ("input", 10**400, "presets.mine.input inf: must be from 0"),
        ("input", "cheap", "presets.mine.input is 'cheap': must be a number"),
        ("input", True, "presets.mine.input is True: must be a number"),
        ("gpu_hours", 1, "presets.mine.gpu_hours: unknown; one of date, source, input"),
        ("date", None, "presets.mine.date is missing"),
        ("date", "yesterday", "presets.mine.date is 'yesterday': must be a day, such as 2026-11-09"),
        ("source", None, "presets.mine.source is missing"),
        ("source", "one\ntwo", "presets.mine.source is 'one\\ntwo': must be text on one line"),
        ("cached_input", 2, "presets.mine.cached_input 2: must be at most input, 1"),
    ],
)
def test_a_bad_field_is_one_line(tmp_path: Path, field: str, value: object, reason: str) -> None:
    path = make_file(tmp_path, {"mine": {**PRESET, field: value}})
    with pytest.raises(PriceError) as found:
        read_presets(path)
    assert str(found.value).startswith(f"{path}: {reason}")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file is None: must hold named fields"),
        ("presets: {}", "presets is empty"),
        ("presets: [1]", "presets is [1]: must hold named fields"),
        ("presets: {1: {}}", "presets: name 1: must be text"),
        ("preset: {}", "preset: unknown; one of presets"),
        ("presets:\n  a: {input: 1, input: 2}", "'presets.a.input': is there twice; remove one"),
        ("presets: {a: {date: 2026-13-45}}", "month must be in 1..12"),
        ("presets: {", "not YAML: "),
        ("? [a]\n: 1", "not YAML: "),
        ("presets: &a {a: *a}", "presets.a.a: unknown"),
        ("[" * 500, "nested too deeply"),
        ("!!python/object/apply:os.getcwd []", "not YAML: "),
    ],
)
def test_a_file_that_holds_no_presets_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(PriceError) as found:
        read_presets(path)
    assert str(found.value).startswith(f"{path}: {reason}")
    assert "\n" not in str(found.value)


def test_no_file_or_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(PriceError, match=r"name another --prices$"):
            read_presets(path)
