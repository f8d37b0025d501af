"""How soon conversations come back, by kind: what the policies that look ahead learn from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from heapq import nsmallest
from typing import Final

from flashstate.core.survival import EDGES_S, PRIOR_RATES, Silences, age_bucket, worth
from flashstate.core.thread import Thread

Kind = tuple[Hashable, ...]
"""From the broad to the narrow: a prefix of a kind is a kind."""

_BROADER_WEIGHT: Final = 12.0
"""Silences that the next broader kind counts for in a narrow one."""
_MOST_KINDS: Final = 64
"""Hosts may give thousands of hints: beyond this many the rarest count with the next broader kind."""


class ReturnRates:
    """Counts silences as they end and, at `publish`, works out what an age of silence is worth, for each kind.

    Kinds: whether the thread was left, then how its last response stopped. What is rare leans on what it has in
    common with others.
    """

    def __init__(self) -> None:
        self._closed: dict[Kind, Silences] = defaultdict(Silences)
        self._open: dict[Thread, tuple[Kind, float]] = {}
        self._tables: dict[Kind, list[float]] = {(): worth(PRIOR_RATES)}

    @staticmethod
    def kind(thread: Thread) -> Kind:
        """What distinguishes its silence."""
        return (thread.is_left, thread.hint)

    def begin(self, thread: Thread) -> None:
        """`thread` is silent from its `since_s` on."""
        self._open[thread] = (self.kind(thread), thread.since_s)

    def finish(self, thread: Thread, now: float) -> None:
        """`thread` is back. Idempotent."""
        entry = self._open.pop(thread, None)
        if entry is not None:
            kind, since = entry
            self._closed[kind].add(now - since, returned=True)

    def publish(self, now: float) -> None:
        """Work the tables out afresh. O(open silences + kinds)."""
        self._drop_rare()
        counts: dict[Kind, Silences] = defaultdict(Silences)
        for kind, silences in self._closed.items():
            _count(counts, kind, silences)
        silent: dict[Kind, Silences] = defaultdict(Silences)
        for thread, (kind, since) in list(self._open.items()):
            silent[kind].add(now - since, returned=False)
            if now - since > EDGES_S[-1]:
                # Nothing more to learn from it: count it for good.
                self._closed[kind].add(now - since, returned=False)
                del self._open[thread]
        for kind, silences in silent.items():
            _count(counts, kind, silences)
        rates: dict[Kind, list[float]] = {}
        for kind in sorted(counts, key=len):
            prior = rates[kind[:-1]] if kind else PRIOR_RATES
            rates[kind] = counts[kind].rates(prior, _BROADER_WEIGHT)
        self._tables |= {kind: worth(rate) for kind, rate in rates.items()}

    def _drop_rare(self) -> None:
        excess = len(self._closed) - _MOST_KINDS
        if excess > 0:
            for kind in nsmallest(excess, self._closed, key=lambda kind: self._closed[kind].reached[0]):
                silences = self._closed.pop(kind)
                self._tables.pop(kind, None)
                self._closed[kind[:1]] = self._closed[kind[:1]].plus(silences)

    def worth(self, kind: Kind, age_s: float) -> float:
        """Expected returns a second of a thread of this kind, silent for `age_s`."""
        return self.table(kind)[age_bucket(age_s)]

    def table(self, kind: Kind) -> Sequence[float]:
        """`worth` at each of the AGES stretches of ages."""
        table = self._tables.get(kind)
        while table is None:
            kind = kind[:-1]
            table = self._tables.get(kind)
        return table


def _count(counts: dict[Kind, Silences], kind: Kind, silences: Silences) -> None:
    """Add to a kind and to every broader one."""
    for length in range(len(kind) + 1):
        counts[kind[:length]] = counts[kind[:length]].plus(silences)
