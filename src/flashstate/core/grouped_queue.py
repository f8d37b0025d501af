"""The same order, for policies that rank a conversation's units by one factor: a heap of heaps."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from math import inf

from flashstate.core.policies.base import Policy, Rank, ThreadedPolicy
from flashstate.core.queue import EvictionQueue
from flashstate.core.state import RecoveryUnit
from flashstate.core.thread import Thread


@dataclass(slots=True, eq=False)
class _Group:
    """Units under one factor."""

    owner: Thread | RecoveryUnit
    heap: list[tuple[float, int, int, RecoveryUnit]] = field(default_factory=list)
    """Weight, serial, version, unit. Weights are lazy: one may have risen since."""
    entry: int = 0
    """Number of its entry in the heap of groups that counts; 0: none."""
    bound: float = 0.0
    """No more than the factor, until the entry's timer rings."""
    first: tuple[float, int] = (0.0, 0)
    """Weight and serial it is queued under: no more than those of any of its units."""

    def drop_stale_front(self) -> None:
        """What has gone must not keep the group in its place."""
        heap = self.heap
        while heap and heap[0][2] != heap[0][3].version:
            heapq.heappop(heap)


class GroupedQueue(EvictionQueue):
    """An `EvictionQueue` in which time moves groups instead of units.

    Within a group the order is that of the weights, which do not change with time. A group is queued under its lowest
    weight times the least that its factor comes to until its timer rings; that it is worth more now is found out
    when it comes up. The timer is set for when its first unit may come to be worth less than the last victim was:
    few groups come up before, and a group far from the front is touched once, not at every step of its factor.
    """

    policy: ThreadedPolicy

    def __init__(self, policy: ThreadedPolicy) -> None:
        super().__init__(policy)
        self._entries = count(1)
        self._level = 0.0
        """What the last victim was worth. Any value gives the same victims; a good one saves work."""

    def push_thread(self, thread: Thread, now: float) -> None:
        group = self._group(thread)
        group.heap = [self._entry(unit) for unit in thread.units if self._is_ranked(unit)]
        heapq.heapify(group.heap)
        self._queue_group(group, now)

    def rebuild(self, units: Iterable[RecoveryUnit], now: float) -> None:
        self._clear()
        for unit in units:
            if self._is_ranked(unit):
                self._group(unit.thread or unit).heap.append(self._entry(unit))
        for group in self._groups.values():
            heapq.heapify(group.heap)
            self._queue_group(group, now)

    def lower_bounds(self, now: float) -> dict[RecoveryUnit, tuple[Rank, int]]:
        due = {group for at, entry, group in self._bells if at <= now and entry == group.entry}
        bounds: dict[RecoveryUnit, tuple[Rank, int]] = {}
        for rank, weight, serial, entry, group in self._queue:
            if entry != group.entry:
                continue
            for own, own_serial, version, unit in group.heap:
                if version == unit.version:
                    # It comes up when both its group and, within that, it itself have come up.
                    alone = ((group.bound * own, own), own_serial)
                    bounds[unit] = ((), 0) if group in due else max(((rank, weight), serial), alone)
        return bounds

    def _clear(self) -> None:
        self._groups: dict[Thread | RecoveryUnit, _Group] = {}
        self._queue: list[tuple[float, float, int, int, _Group]] = []
        """Least rank, its weight and serial, entry, group."""
        self._bells: list[tuple[float, int, _Group]] = []
        """When an entry holds no longer."""
        self._pushes = 0
        """Since stale entries were last dropped."""

    def _group(self, owner: Thread | RecoveryUnit) -> _Group:
        group = self._groups.get(owner)
        if group is None:
            group = self._groups[owner] = _Group(owner)
        return group

    def _entry(self, unit: RecoveryUnit) -> tuple[float, int, int, RecoveryUnit]:
        """A new entry for `unit`. Mutates: its older ones go stale."""
        unit.version += 1
        return self.policy.weight(unit), unit.serial, unit.version, unit

    def _rank(self, unit: RecoveryUnit, now: float) -> None:
        thread = unit.thread
        group = self._group(thread or unit)
        entry = self._entry(unit)
        heapq.heappush(group.heap, entry)
        # A unit alone is aged by its own last use, which may be why it is pushed.
        if thread is None or not group.entry or entry[:2] < group.first:
            self._queue_group(group, now)
        self._pushes += 1
        if self._pushes > self.SLACK + 3 * len(self._members):
            self._drop_stale()

    def _queue_group(self, group: _Group, now: float) -> None:
        """Queue `group` afresh, for as long as its first unit stays above the level or above what it is worth now."""
        group.drop_stale_front()
        if not group.heap:
            self._drop(group)
            return
        weight = group.heap[0][0]
        least = self._level / weight if weight > 0 else 0.0
        self._enqueue(group, *self.policy.lowest(group.owner, now, least))

    def _enqueue(self, group: _Group, bound: float, until: float | None) -> None:
        """Queue `group` at its first unit's weight times `bound`, which holds until then."""
        weight, serial, _, _ = group.heap[0]
        group.entry = entry = next(self._entries)
        group.bound, group.first = bound, (weight, serial)
        heapq.heappush(self._queue, (bound * weight, weight, serial, entry, group))
        if until is not None:
            heapq.heappush(self._bells, (until, entry, group))
        self._pushes += 1

    def _drop(self, group: _Group) -> None:
        group.entry = 0
        del self._groups[group.owner]

    def _front(self, now: float) -> tuple[RecoveryUnit, Rank] | None:
        self._ring_timers(now)
        queue = self._queue
        while queue:
            queued, queued_weight, queued_serial, entry, group = queue[0]
            group.drop_stale_front()
            if entry != group.entry or not group.heap:
                heapq.heappop(queue)
                if entry == group.entry:
                    self._drop(group)
                continue
            weight, serial, version, unit = group.heap[0]
            # What it is worth now, and how long no less.
            factor, until = self.policy.lowest(group.owner, now, inf)
            if (factor * weight, weight, serial) > (queued, queued_weight, queued_serial):
                heapq.heappop(queue)
                self._enqueue(group, factor, until)
            elif unit.is_held or unit.parked:
                heapq.heappop(group.heap)
            # Last, for it costs most: has its own weight risen?
            elif (current := self.policy.weight(unit)) > weight:
                heapq.heapreplace(group.heap, (current, serial, version, unit))
            else:
                self._level = factor * current
                return unit, (self._level, current)
        return None

    def _ring_timers(self, now: float) -> None:
        while self._bells and self._bells[0][0] <= now:
            _, entry, group = heapq.heappop(self._bells)
            if entry == group.entry:
                self._queue_group(group, now)

    def _drop_stale(self) -> None:
        self._pushes = 0
        for group in list(self._groups.values()):
            group.heap = [e for e in group.heap if e[2] == e[3].version]
            heapq.heapify(group.heap)
            if not group.heap:
                self._drop(group)
        self._queue = [e for e in self._queue if e[3] == e[4].entry]
        self._bells = [e for e in self._bells if e[1] == e[2].entry]
        heapq.heapify(self._queue)
        heapq.heapify(self._bells)


def make_queue(policy: Policy) -> EvictionQueue:
    """The queue that suits `policy`."""
    return GroupedQueue(policy) if isinstance(policy, ThreadedPolicy) else EvictionQueue(policy)
