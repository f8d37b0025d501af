"""The log's own bookkeeping: which block is which, which tokens are new, what a kill leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from flashstate.core.path import Tokens
from flashstate.plugin.event_log import EventLog, check_writable
from flashstate.plugin.serve import read_options
from flashstate.plugin.settings import ON, Settings, SettingsError, read_settings

SALT = "a secret"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_blocks_are_named_as_they_are_handed_out(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "log"))
    log.took([7, 3])
    log.took([7])
    assert log.names([3, 7]) == [2, 3]


def test_blocks_that_move_together_are_one_event(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "log"))
    log.took([10, 11, 12])
    log.moved("freed", [10])
    log.moved("freed", [11])
    log.moved("touched", [])
    log.moved("touched", [11])
    assert log.written == 2
    log.write("ended", request="a")
    assert [(e["event"], e.get("blocks")) for e in lines(tmp_path / "log")] == [
        *(("freed", [1, 2]), ("touched", [2]), ("ended", None))
    ]


def test_tokens_are_told_once_and_a_salt_only_as_a_number(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "log"))
    first = log.request("a", Tokens([1, 2, 3], 2, namespace=(None, SALT)))
    assert first == {"request": "a", "namespace": 0, "from": 0, "tokens": [1, 2, 3]}
    grown = Tokens([1, 2, 3, 4], 2, namespace=(None, SALT))
    assert log.request("a", grown) == {"request": "a", "from": 3, "tokens": [4]}
    assert log.request("a", grown) == {"request": "a"}
    assert log.request("a", grown, is_rewritten=True) == {"request": "a", "from": 0, "tokens": [1, 2, 3, 4]}
    assert log.request("b", Tokens([1], 2, namespace=(None, None)))["namespace"] == 1
    log.forget("a")
    assert log.request("a", grown) == {"request": "a", "namespace": 0, "from": 0, "tokens": [1, 2, 3, 4]}


def test_a_log_is_its_owner_s_alone_and_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    EventLog(str(path)).write("ended", request="a")
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("a") as file:
        file.write('{"event":"to')
    EventLog(str(path)).write("ended", request="b")
    assert path.read_text().splitlines()[1] == '{"event":"to'
    assert json.loads(path.read_text().splitlines()[2])["request"] == "b"


def test_a_log_that_cannot_be_written_is_named_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "no" / "log"
    with pytest.raises(SettingsError) as error:
        check_writable(str(path))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_the_option_is_off_by_default_and_survives_the_environment() -> None:
    assert read_options(["model"])[0].event_log == ""
    settings, rest = read_options(["model", "--event-log", "some/log"])
    assert (settings, rest) == (Settings(mode=ON, event_log="some/log"), ["model"])
    environment: dict[str, str] = {}
    settings.export(environment)
    assert read_settings(environment) == settings
