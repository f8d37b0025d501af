"""What FlashState was told: the switch and its options, handed from process to process in the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass, fields

from flashstate.core.cost import PrefillCostModel
from flashstate.core.policies import Policy, PolicySettings, make_policy, policy_names

SWITCH_VARIABLE = "FLASHSTATE"
SETTINGS_VARIABLE = "FLASHSTATE_SETTINGS"
OFF, OBSERVE, ON = "off", "observe", "flashstate"
MODES = (ON, OBSERVE, OFF)
INSIDE_AUTO, INSIDE_ON, INSIDE_OFF = "auto", "on", "off"
INSIDE = (INSIDE_AUTO, INSIDE_ON, INSIDE_OFF)
"""Of `in_chunk_export`. auto: on the platforms whose hooks have run on their hardware, that is on CPU."""
_SWITCH = {"": OFF, "0": OFF, "off": OFF, "1": ON, "on": ON, "flashstate": ON, "observe": OBSERVE}


class SettingsError(ValueError):
    """A setting no one can honour, in one line."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Every switch, under its published name (dashes as underscores)."""

    mode: str = OFF
    mamba_frontier_checkpoint: bool = True
    """Keep the exact end of every request."""
    mamba_prefill_export: bool = True
    """Also keep one state from inside each prefill chunk: where prompts part, or at len(prompt) - 1."""
    in_chunk_export: str = INSIDE_AUTO
    """Export inside the chunk where the kernels can (one of INSIDE); otherwise a chunk is ended at len(prompt) - 1."""
    prefix_cache_eviction: str = "forecast"
    prefix_cache_leaf_last: bool = False
    prefix_cache_leaf_idle_seconds: float = 60.0
    prefix_cache_keep_superseded_turns: int | None = None
    prefill_cost_coefficients: tuple[float, float] = (PrefillCostModel().d, PrefillCostModel().e)
    check: bool = False
    """Check every invariant after every step (slow)."""
    event_log: str = ""
    """Where to log what the engine says and asks, with all token ids; empty: nowhere."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise SettingsError(f"mode {self.mode!r}: unknown; one of {', '.join(MODES)}")
        if self.in_chunk_export not in INSIDE:
            raise SettingsError(
                f"--in-chunk-export {self.in_chunk_export!r}: unknown; one of {', '.join(INSIDE)}"
            )
        if self.prefix_cache_eviction not in policy_names():
            names = ", ".join(policy_names())
            raise SettingsError(
                f"--prefix-cache-eviction {self.prefix_cache_eviction!r}: unknown; one of {names}"
            )
        if self.prefix_cache_leaf_last and self.prefix_cache_eviction not in ("gds", "leaf-last"):
            raise SettingsError(
                f"--prefix-cache-leaf-last orders GreedyDual-Size tiers; --prefix-cache-eviction is "
                f"{self.prefix_cache_eviction!r}: use gds, or drop --prefix-cache-leaf-last"
            )
        try:
            self.make_policy()
        except ValueError as error:
            raise SettingsError(str(error)) from None

    @property
    def cost(self) -> PrefillCostModel:
        return PrefillCostModel(*self.prefill_cost_coefficients)

    @property
    def policy_name(self) -> str:
        if self.prefix_cache_keep_superseded_turns is not None:
            return "keep-superseded"
        return "leaf-last" if self.prefix_cache_leaf_last else self.prefix_cache_eviction

    def make_policy(self) -> Policy:
        """A new policy as told."""
        turns = self.prefix_cache_keep_superseded_turns
        settings = PolicySettings(
            cost=self.cost,
            leaf_idle_s=self.prefix_cache_leaf_idle_seconds,
            **({} if turns is None else {"keep_superseded_turns": turns}),
        )
        return make_policy(self.policy_name, settings)

    def export(self, environment: MutableMapping[str, str]) -> None:
        """Write into `environment`, for this process's children."""
        environment[SWITCH_VARIABLE] = self.mode
        environment[SETTINGS_VARIABLE] = json.dumps(asdict(self))


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in the environment. Raises SettingsError naming the variable that cannot be read."""
    environment = os.environ if environment is None else environment
    switch = environment.get(SWITCH_VARIABLE, "").strip().lower()
    if switch not in _SWITCH:
        raise SettingsError(f"{SWITCH_VARIABLE}={switch!r}: unknown; use 1, observe or 0")
    mode = _SWITCH[switch]
    if mode == OFF:
        return Settings()
    text = environment.get(SETTINGS_VARIABLE) or "{}"
    try:
        given = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{SETTINGS_VARIABLE} is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise SettingsError(f"{SETTINGS_VARIABLE} must be a JSON object, not {text[:40]!r}")
    known = {field.name for field in fields(Settings)}
    if unknown := sorted(set(given) - known):
        raise SettingsError(f"{SETTINGS_VARIABLE} has unknown keys {unknown}; known are {sorted(known)}")
    for name, value in given.items():
        default = getattr(Settings(), name)
        if not _fits(default, value):
            raise SettingsError(
                f"{SETTINGS_VARIABLE}: {name} cannot be {value!r}; its default is {default!r}"
            )
        if isinstance(value, list):
            given[name] = tuple(value)
    return Settings(**{**given, "mode": mode})


def _fits(default: object, value: object) -> bool:
    """Whether `value`, from JSON, is of the kind that `default` is; None stands for an optional whole number."""
    if isinstance(default, tuple):
        is_row = isinstance(value, list) and len(value) == len(default)
        return is_row and all(map(_fits, default, value))  # type: ignore[call-overload]
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    if default is None:
        return value is None or isinstance(value, int)
    return isinstance(value, (int, float)) if isinstance(default, float) else isinstance(value, type(default))
