"""The engines that are compared: the same server and model, with different prefix caching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from flashstate.report.results import FLASHSTATE, STOCK


@dataclass(frozen=True)
class Engine:
    """One engine of the comparison. `observe` is stock vLLM, untouched, with our counters beside it."""

    name: str
    mode: Literal["observe", "flashstate"]
    arguments: tuple[str, ...] = ()

    @property
    def caption(self) -> str:
        """How it is set, for people."""
        return " ".join(self.arguments) or "default settings"


_FINE_MATCH: Final = ("--prefix-match-unit", "16")
_DENSE: Final = ("--prefix-cache-retention-interval", "None")

STOCK_DEFAULT: Final = Engine(STOCK, "observe")
STOCK_FINE: Final = Engine("stock-match-unit-16", "observe", _FINE_MATCH)
STOCK_DENSE: Final = Engine("stock-dense", "observe", _DENSE)
STOCK_FINE_DENSE: Final = Engine("stock-match-unit-16-dense", "observe", _FINE_MATCH + _DENSE)
OURS: Final = Engine(FLASHSTATE, "flashstate")


def engines(*, full: bool) -> tuple[Engine, ...]:
    """Whom to run, in order.

    Stock vLLM has two settings that help a hybrid model: hits on a finer grid than a block, and a checkpoint
    at every block ("dense"). Dense needs several times the cache: past the cliff, where the demo is, it was
    the slowest of the three in the one run that tried it, so it is left to full comparisons, to save a minute.
    With room to spare it can be the best: run --full there. Full comparisons combine the two settings, too.
    """
    dense = (STOCK_DENSE, STOCK_FINE_DENSE) if full else ()
    return (STOCK_DEFAULT, STOCK_FINE, *dense, OURS)
