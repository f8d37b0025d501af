"""The engines that are compared: the same server and model, with different prefix caching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from flashstate.bench.error import BenchError
from flashstate.core.policies import policy_names
from flashstate.report.results import FLASHSTATE, STOCK, STOCK_BEST
from flashstate.urls import is_server, without_passwords

Mode = Literal["observe", "flashstate", "running"]


@dataclass(frozen=True)
class Engine:
    """One engine of the comparison.

    Modes: `observe` is stock vLLM, untouched, with our counters beside it; `running` is somebody's server at `url`.
    """

    name: str
    mode: Mode
    arguments: tuple[str, ...] = ()
    url: str | None = None

    @property
    def caption(self) -> str:
        """How it is set, for people."""
        if self.url is not None:
            return without_passwords(self.url)
        return " ".join(self.arguments) or "default settings"

    @property
    def is_stock(self) -> bool:
        """Whether it is vLLM without FlashState, started by us."""
        return self.mode == "observe"

    def with_arguments(self, *more: str) -> Engine:
        """The same, told more."""
        return replace(self, arguments=(*self.arguments, *more))


_ADDRESS: Final = ("http://", "https://")
_FINE_MATCH: Final = ("--prefix-match-unit", "16")
_DENSE: Final = ("--prefix-cache-retention-interval", "None")
_EVICTION: Final = "--prefix-cache-eviction"

STOCK_DEFAULT: Final = Engine(STOCK, "observe")
STOCK_FINE: Final = Engine("stock-match-unit-16", "observe", _FINE_MATCH)
STOCK_DENSE: Final = Engine("stock-dense", "observe", _DENSE)
STOCK_FINE_DENSE: Final = Engine("stock-match-unit-16-dense", "observe", _FINE_MATCH + _DENSE)
OURS: Final = Engine(FLASHSTATE, "flashstate")
_STOCK: Final = (STOCK_DEFAULT, STOCK_FINE, STOCK_DENSE, STOCK_FINE_DENSE)


def engines(*, full: bool) -> tuple[Engine, ...]:
    """Whom the demo runs, in order.

    Stock vLLM has two settings that help a hybrid model: hits on a finer grid than a block, and a checkpoint at the
    end of every chunk ("dense"). Dense needs several times the cache, and past the cliff, where the demo is, it is
    the slowest: it is left to full comparisons, to save a minute. Those combine the two settings, too.
    """
    dense = (STOCK_DENSE, STOCK_FINE_DENSE) if full else ()
    return (STOCK_DEFAULT, STOCK_FINE, *dense, OURS)


def chosen(text: str) -> tuple[Engine, ...]:
    """The engines that --engines names, each once. Raises BenchError.

    `stock-best` stands for all settings of stock vLLM (the best one is found load by load), `flashstate:POLICY` for
    FlashState with another eviction policy, URL or NAME=URL for a server that is running.
    """
    found: dict[str, Engine] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        for engine in _STOCK if part == STOCK_BEST else (_engine(part),):
            if found.setdefault(engine.name, engine) != engine:
                raise BenchError(
                    f"--engines {without_passwords(text)}: two servers are called {engine.name}: name them NAME=URL"
                )
    if not found:
        raise BenchError("--engines: names none")
    return tuple(found.values())


def _engine(name: str) -> Engine:
    ours = {engine.name: engine for engine in (*_STOCK, OURS)}
    if name in ours:
        return ours[name]
    label, equals, url = name.partition("=")
    if name.startswith(_ADDRESS):
        label, equals, url = name.split("://", 1)[1].rpartition("@")[2].rstrip("/"), "=", name
    if equals and url.startswith(_ADDRESS):
        shown = without_passwords(name)
        if not label or not is_server(url):
            raise BenchError(
                f"--engines {shown}: must be like http://localhost:8000 or NAME=http://localhost:8000"
            )
        if label in ours or label == STOCK_BEST:
            raise BenchError(
                f"--engines {label}=...: is the name of an engine that is started here: choose another"
            )
        return Engine(label, "running", url=url)
    base, _, policy = name.partition(":")
    if base == FLASHSTATE and policy in policy_names():
        return Engine(name, "flashstate", (_EVICTION, policy))
    choices = ", ".join([*ours, STOCK_BEST, f"{FLASHSTATE}:POLICY", "URL", "NAME=URL"])
    policies = f" (policies: {', '.join(policy_names())})" if base == FLASHSTATE else ""
    raise BenchError(f"--engines {without_passwords(name)}: unknown; choose of {choices}{policies}")


def known(name: str, caption: str) -> Engine:
    """An engine of earlier runs, by what `chosen` made of it then."""
    try:
        return _engine(name)
    except BenchError:
        return Engine(name, "running", url=caption)


def started(found: Sequence[Engine]) -> list[Engine]:
    """Those that have to be started."""
    return [engine for engine in found if engine.mode != "running"]
