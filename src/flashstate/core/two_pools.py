"""A cache with memory of its own for states and for KV, as SGLang has it."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from itertools import count

from flashstate.core.base import Capture, Eviction
from flashstate.core.cache import HybridCache
from flashstate.core.cost import PrefillCostModel
from flashstate.core.path import TokenPath
from flashstate.core.policies import PolicySettings, make_policy
from flashstate.core.state import REQUEST_END, Checkpoint, RecoveryUnit
from flashstate.core.tree import KVBlock, Node

STATE_TO_KV = 0.9
"""SGLang's default for --mamba-full-memory-ratio: memory for states over memory for KV."""
SLOTS_A_REQUEST = 3
"""States that a running request takes: the one it computes with, and two that snapshots are written to in turn."""
TRACK_TOKENS = 256
"""SGLang's default for --mamba-track-interval."""


class TwoPoolCache(HybridCache):
    """At most `slots` states, running requests' included, whatever room KV leaves; two orders of last use.

    After SGLang's MambaRadixCache (python/sglang/srt/mem_cache/mamba_radix_cache.py, commit 00df707). There, whoever
    matches or inserts a path uses all states and KV on it, the deeper the later. For want of a state, the state
    used longest ago goes: between two others alone, at a leaf with the KV that only led to it. For want of KV, the leaf
    used longest ago goes with its state. What a running request resumed from stays. Of a request that has ended, the
    state last tracked stays, at a multiple of `track_tokens`, and the KV after it goes at once.

    Its checkpoints take no blocks: the host counts KV alone, against the share of memory that KV has.
    """

    def __init__(
        self,
        *,
        block_tokens: int,
        history_tokens: int,
        slots: int,
        slots_a_request: int = SLOTS_A_REQUEST,
        track_tokens: int = TRACK_TOKENS,
        cost: PrefillCostModel | None = None,
    ) -> None:
        policy = make_policy("lru", PolicySettings(cost=cost or PrefillCostModel()))
        super().__init__(block_tokens=block_tokens, policy=policy, history_tokens=history_tokens)
        self.slots = slots
        self.slots_a_request = slots_a_request
        self.track_tokens = track_tokens
        self._running: set[Hashable] = set()
        self._leaves: list[tuple[int, int, RecoveryUnit]] = []
        """Leaves by last use, with entries that no longer hold."""
        self._pushes = count()

    def admit(self, request: Hashable, path: TokenPath, resumed: int, now: float) -> None:
        """See StateCache. The slots it takes are made free at the next `capture`."""
        super().admit(request, path, resumed, now)
        self._running.add(request)
        self._use_path(path, resumed, now)

    def capture(
        self,
        path: TokenPath,
        checkpoint: Checkpoint,
        kv: Sequence[KVBlock],
        now: float,
        *,
        room: bool,
        request: Hashable = None,
    ) -> Capture:
        """See StateCache. A request's end stands for the last position tracked before it."""
        assert not checkpoint.blocks, checkpoint
        position = checkpoint.position
        if checkpoint.kind == REQUEST_END:
            position = position // self.track_tokens * self.track_tokens
        if position == 0:
            return Capture(kept=False)
        if position != checkpoint.position:
            checkpoint = checkpoint._replace(position=position)
        kv = kv[: -(-position // self.block_tokens)]
        got = super().capture(path, checkpoint, kv, now, room=True, request=request)
        self._push_leaf(self._use_path(path, position, now))
        freed = got.freed | self._free_slots(now)
        return Capture(got.kept, got.taken - freed, freed - got.taken)

    def release(self, request: Hashable, now: float) -> frozenset[int]:
        self._running.discard(request)
        node = self._holds.get(request)
        above = [] if node is None else [n.mark for n in (node, *node.ancestors())]
        freed = super().release(request, now)
        self._push_leaf(next((unit for unit in above if unit is not None), None))
        return freed

    def evict(self, now: float) -> Eviction | None:
        """Make room for KV: the leaf used longest ago goes. O(log units). None if running requests hold them all."""
        while self._leaves:
            serial, _, unit = heapq.heappop(self._leaves)
            if unit not in self.queue or unit.is_held or unit.node.children:
                continue
            if serial != unit.use_serial:
                self._push_leaf(unit)
                continue
            tier = unit.tier
            return Eviction(unit.position, tier, self._give_up(unit, now))
        return None

    def _free_slots(self, now: float) -> frozenset[int]:
        """Let states go, the one used longest ago first, until running requests have their slots."""
        freed: frozenset[int] = frozenset()
        while len(self.queue) > self.slots - self.slots_a_request * len(self._running):
            victim = self.queue.peek(now)
            if victim is None:
                break
            freed |= self._give_up(victim[0], now)
        return freed

    def _give_up(self, unit: RecoveryUnit, now: float) -> frozenset[int]:
        above = next((node.mark for node in unit.node.ancestors() if node.mark is not None), None)
        self.counters.evictions[unit.tier] += 1
        freed = self._take_out(unit, now)
        self.resident_blocks -= len(freed)
        self._push_leaf(above)
        return frozenset(freed)

    def _use_path(self, path: TokenPath, limit: int, now: float) -> RecoveryUnit | None:
        """Stamp every state on `path` up to `limit`, the deeper the later. The deepest one."""
        units: list[RecoveryUnit] = []
        match = self.tree.at_tip(path, limit) or self.tree.find(path, limit)
        node: Node[RecoveryUnit] | None = match.node
        while node is not None:
            if node.mark is not None:
                units.append(node.mark)
            node = node.parent
        # Ranks rise: the queue finds out when they come up.
        for unit, serial in zip(reversed(units), self._serials, strict=False):
            unit.last_use_s, unit.use_serial = now, serial
        return units[0] if units else None

    def _push_leaf(self, unit: RecoveryUnit | None) -> None:
        if unit is not None and not unit.node.children:
            heapq.heappush(self._leaves, (unit.use_serial, next(self._pushes), unit))
