"""What a sweep's runs have in common: enough to make them again, and to tell whether old results still hold."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import flashstate
from flashstate.simulate.engine_clock import AS_PUBLISHED, Serving
from flashstate.simulate.presets import CacheGeometry
from flashstate.simulate.rules import Rules
from flashstate.simulate.workload import Workload

RECORDED: Final = "recorded"
ENGINE: Final = "engine"
CLOCKS: Final = (RECORDED, ENGINE)

_DECIDES: Final = ("core", "models", "simulate", "traces")
"""Packages whose code has a part in the figures."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Workload, geometry, clock and rules. The sessions and the seed of `rules` are replaced run by run.

    `serving` is for the engine's clock.
    """

    workload: Workload
    geometry: CacheGeometry
    clock: str
    rules: Rules
    serving: Serving = AS_PUBLISHED

    def as_json(self) -> dict[str, Any]:
        """Plain values. Two setups that give the same ones give the same results for the same run."""
        rules = {
            name: getattr(self.rules, name) for name in Rules.__slots__ if name not in ("sessions", "seed")
        }
        serving = {"serving": self.serving.as_json(self.geometry)} if self.clock == ENGINE else {}
        return serving | {
            "traces": self.workload.as_json(),
            "geometry": self.geometry.as_json(),
            "clock": self.clock,
            "rules": rules,
            "version": flashstate.__version__,
            "code": code_digest(),
        }


def code_digest() -> str:
    """Names the state of the code that decides the figures."""
    digest = hashlib.sha256()
    root = Path(flashstate.__file__).parent
    for package in _DECIDES:
        for file in sorted((root / package).rglob("*.py")):
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def machine() -> dict[str, Any]:
    """Where it ran: for the record, as times depend on it and figures do not."""
    return {
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
    }


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> Sequence[str]:
    """The names of what two setups disagree in, such as `rules.gaps`."""
    found = []
    for name in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(name), theirs.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            found += [f"{name}.{inner}" for inner in differences(a, b)]
        elif a != b:
            found.append(name)
    return found
