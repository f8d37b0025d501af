"""The order in which units are evicted: a heap with lazy corrections, so that nothing scans."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from flashstate.core.policies.base import Policy, Rank
from flashstate.core.state import RecoveryUnit
from flashstate.core.thread import Thread

_Entry = tuple[Rank, int, int, RecoveryUnit]


class EvictionQueue:
    """Ranks units by a policy; lowest goes first, older first among equals.

    Ranks that may have fallen must be pushed again at once (`push`); ranks that may have risen are found out
    when they come up. Held units are passed over, parked ones go only when nothing else is left.
    """

    SLACK: ClassVar[int] = 64
    """Stale entries that do not matter."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._has_deadlines = type(policy).deadline is not Policy.deadline
        self._members: dict[RecoveryUnit, Rank | None] = {}
        """The units, each with the rank it last had; it is queued at that or below, with None not at all."""
        self._parked: set[RecoveryUnit] = set()
        self._clear()

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, unit: RecoveryUnit) -> bool:
        return unit in self._members

    def add(self, unit: RecoveryUnit) -> None:
        """Take a new unit in. It is not ranked before the first `push`."""
        self._members[unit] = None

    def remove(self, unit: RecoveryUnit) -> None:
        """Forget a unit. Its heap entries go stale."""
        self._members.pop(unit, None)
        self._parked.discard(unit)
        unit.version += 1

    def push(self, unit: RecoveryUnit, now: float) -> None:
        """Re-rank `unit` now. O(log units) amortised."""
        if self._is_ranked(unit):
            self._rank(unit, now)

    def push_thread(self, thread: Thread, now: float) -> None:
        """Re-rank every unit of `thread`, after a change of its own."""
        for unit in thread.units:
            self.push(unit, now)

    def rebuild(self, units: Iterable[RecoveryUnit], now: float) -> None:
        """Rank every unit afresh, after a change of the policy's that moved them all."""
        self._clear()
        rank_of, deadline_of, members = self.policy.rank, self.policy.deadline, self._members
        for unit in units:
            if self._is_ranked(unit):
                members[unit] = rank = rank_of(unit, now)
                deadline = deadline_of(unit, now) if self._has_deadlines else None
                self._enter(unit, rank, deadline, list.append)
        heapq.heapify(self._heap)
        heapq.heapify(self._timers)

    def peek(self, now: float) -> tuple[RecoveryUnit, Rank] | None:
        """The next victim, or None when every unit is held. Settles lazy corrections."""
        front = self._front(now)
        if front is not None:
            return front
        waiting = [unit for unit in self._parked if unit.parked and not unit.is_held]
        # Requests are served in order of arrival: the one parked last will be resumed from last.
        last = max(waiting, key=lambda unit: unit.park_serial, default=None)
        return None if last is None else (last, self.policy.rank(last, now))

    def lower_bounds(self, now: float) -> dict[RecoveryUnit, tuple[Rank, int]]:
        """What each queued unit comes up at, at the latest: rank and serial. Scans: for checks only.

        An empty rank, below all others, for what a timer that is due is about to rank again.
        """
        due = {(unit, version) for at, _, version, unit in self._timers if at <= now}
        return {
            unit: ((), 0) if (unit, version) in due else (rank, serial)
            for rank, serial, version, unit in self._heap
            if version == unit.version
        }

    def _clear(self) -> None:
        self._members = dict.fromkeys(self._members)
        self._heap: list[_Entry] = []
        self._timers: list[tuple[float, int, int, RecoveryUnit]] = []

    def _is_ranked(self, unit: RecoveryUnit) -> bool:
        """Whether `unit` may go before the parked. Mutates: if it is parked, what was queued for it goes stale."""
        if unit.node.live or unit not in self._members:
            return False
        if unit.parked:
            unit.version += 1
            self._members[unit] = None
            self._parked.add(unit)
            return False
        if self._parked:
            self._parked.discard(unit)
        return True

    def _rank(self, unit: RecoveryUnit, now: float) -> None:
        rank = self.policy.rank(unit, now)
        deadline = self.policy.deadline(unit, now) if self._has_deadlines else None
        members = self._members
        before, members[unit] = members[unit], rank
        if deadline is None and before is not None and before <= rank:
            return  # that it has risen is found out when it comes up
        self._enter(unit, rank, deadline, heapq.heappush)
        if len(self._heap) + len(self._timers) > self.SLACK + 3 * len(self._members):
            self._drop_stale()

    def _enter(
        self, unit: RecoveryUnit, rank: Rank, deadline: float | None, put: Callable[[list[Any], Any], None]
    ) -> None:
        """`put` the entries of `unit`. Mutates: its older ones go stale."""
        unit.version = version = unit.version + 1
        put(self._heap, (rank, unit.serial, version, unit))
        if deadline is not None:
            put(self._timers, (deadline, unit.serial, version, unit))

    def _front(self, now: float) -> tuple[RecoveryUnit, Rank] | None:
        self._ring_timers(now)
        heap, rank_of, members = self._heap, self.policy.rank, self._members
        while heap:
            rank, serial, version, unit = heap[0]
            if version != unit.version:
                heapq.heappop(heap)
                continue
            if unit.node.live or unit.parked:
                members[unit] = None
                heapq.heappop(heap)
                continue
            current = members[unit]
            if current is None or current <= rank:
                current = rank_of(unit, now)
                if current <= rank:
                    return unit, current
                members[unit] = current
            heapq.heapreplace(heap, (current, serial, version, unit))
        return None

    def _ring_timers(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            _, _, version, unit = heapq.heappop(self._timers)
            if version == unit.version:
                self.push(unit, now)

    def _drop_stale(self) -> None:
        self._heap = [e for e in self._heap if e[2] == e[3].version]
        self._timers = [e for e in self._timers if e[2] == e[3].version]
        heapq.heapify(self._heap)
        heapq.heapify(self._timers)
