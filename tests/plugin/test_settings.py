"""Settings, and the command line that makes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("vllm")

from flashstate.core.policies import policy_names
from flashstate.plugin.serve import read_options
from flashstate.plugin.settings import (
    OFF,
    ON,
    SETTINGS_VARIABLE,
    SWITCH_VARIABLE,
    Settings,
    SettingsError,
    read_settings,
)

CHANGED = Settings(
    mode=ON,
    mamba_frontier_checkpoint=False,
    mamba_prefill_export=True,
    prefix_cache_eviction="gds",
    prefix_cache_leaf_last=True,
    prefix_cache_leaf_idle_seconds=5.0,
    prefill_cost_coefficients=(1e-4, 2e-5),
    check=True,
)


@pytest.mark.parametrize("settings", [CHANGED, Settings(mode="observe"), Settings(mode=ON)])
def test_settings_survive_the_environment(settings: Settings) -> None:
    environment: dict[str, str] = {}
    settings.export(environment)
    assert read_settings(environment) == settings


def test_off_exports_off() -> None:
    environment: dict[str, str] = {}
    Settings(mode=OFF, prefix_cache_eviction="lru").export(environment)
    assert read_settings(environment).mode == OFF


@pytest.mark.parametrize(
    ("switch", "mode"),
    [(None, OFF), ("", OFF), ("0", OFF), ("OFF", OFF), ("1", ON), (" on ", ON), ("observe", "observe")],
)
def test_the_switch(switch: str | None, mode: str) -> None:
    assert read_settings({} if switch is None else {SWITCH_VARIABLE: switch}).mode == mode


@pytest.mark.parametrize("policy", policy_names())
def test_every_policy_can_be_chosen(policy: str) -> None:
    assert Settings(mode=ON, prefix_cache_eviction=policy).make_policy()


WRONG: list[tuple[dict[str, str], str]] = [
    ({SWITCH_VARIABLE: "yes"}, "FLASHSTATE='yes'"),
    ({SWITCH_VARIABLE: "1", SETTINGS_VARIABLE: "{"}, "not JSON"),
    ({SWITCH_VARIABLE: "1", SETTINGS_VARIABLE: "[1]"}, "JSON object"),
    ({SWITCH_VARIABLE: "1", SETTINGS_VARIABLE: '{"nothing": 1}'}, "'nothing'"),
    *(
        ({SWITCH_VARIABLE: "1", SETTINGS_VARIABLE: json.dumps(given)}, named)
        for given, named in [
            ({"prefix_cache_eviction": "fifo"}, "'fifo'"),
            ({"prefix_cache_leaf_last": True, "prefix_cache_eviction": "lru"}, "--prefix-cache-leaf-last"),
            ({"prefix_cache_keep_superseded_turns": -1}, "-1"),
            ({"prefix_cache_leaf_idle_seconds": -2.0}, "-2"),
            ({"prefill_cost_coefficients": [-1.0, 0.0]}, "-1"),
            ({"prefill_cost_coefficients": [1.0]}, "prefill"),
            ({"prefill_cost_coefficients": 3}, "prefill"),
            ({"prefix_cache_leaf_idle_seconds": "soon"}, "soon"),
        ]
    ),
]


@pytest.mark.parametrize(("environment", "named"), WRONG)
def test_what_cannot_be_read_is_named_in_one_line(environment: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_settings(environment)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def options(*arguments: str) -> tuple[Settings, list[str]]:
    return read_options(arguments)


def test_our_options_are_taken_out_and_the_rest_keeps_its_order() -> None:
    settings, rest = options(
        *("some/model", "--port", "80", "--prefix-cache-eviction", "gds", "--no-mamba-frontier-checkpoint"),
        *(
            "--max-model-len=4096",
            "--mode",
            "observe",
            "--enable-foo",
            "--bar",
            "-1",
            "-O3",
            "--mode-of-vllm",
            "x",
        ),
    )
    assert settings == Settings(mode="observe", prefix_cache_eviction="gds", mamba_frontier_checkpoint=False)
    assert rest == [
        *("some/model", "--port", "80", "--max-model-len=4096", "--enable-foo", "--bar", "-1", "-O3"),
        *("--mode-of-vllm", "x"),
    ]


def test_no_options_mean_the_defaults_switched_on() -> None:
    assert options("model") == (Settings(mode=ON), ["model"])


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        (["--mamba-prefill-export"], {"mamba_prefill_export": True}),
        (
            ["--prefix-cache-leaf-last", "--prefix-cache-eviction=gds"],
            {"prefix_cache_leaf_last": True, "prefix_cache_eviction": "gds"},
        ),
        (["--prefix-cache-leaf-idle-seconds", "7.5"], {"prefix_cache_leaf_idle_seconds": 7.5}),
        (["--prefix-cache-keep-superseded-turns", "2"], {"prefix_cache_keep_superseded_turns": 2}),
        (["--prefill-cost-coefficients", "1e-4", "2"], {"prefill_cost_coefficients": (1e-4, 2.0)}),
        (["--mode", "off"], {"mode": "off"}),
    ],
)
def test_each_option_sets_what_it_names(arguments: list[str], changed: dict[str, Any]) -> None:
    assert options("model", *arguments) == (Settings(**{"mode": ON, **changed}), ["model"])


def test_an_option_no_one_can_honour_is_an_error() -> None:
    with pytest.raises(SettingsError, match="gds"):
        options("model", "--prefix-cache-leaf-last")
