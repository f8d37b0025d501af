"""The cache of hybrid states: the one object a host drives."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from flashstate.core.attribution import attribute
from flashstate.core.cost import PrefillCostModel
from flashstate.core.counters import Attribution, Counters
from flashstate.core.history import History
from flashstate.core.path import TokenPath
from flashstate.core.policies.base import Policy
from flashstate.core.queue import EvictionQueue
from flashstate.core.state import REQUEST_END, Checkpoint, HybridState, RecoveryUnit, UnitTree
from flashstate.core.tree import KVBlock, Node


@dataclass(frozen=True, slots=True)
class Capture:
    """What became of an offered state: kept or not, the physical blocks now held for it, and those let go."""

    kept: bool
    taken: frozenset[int]
    freed: frozenset[int]


@dataclass(frozen=True, slots=True)
class Eviction:
    """A state gone and the physical blocks the cache no longer holds."""

    position: int
    tier: str
    freed: frozenset[int]


class HybridCache:
    """Files hybrid states, finds where a prefix may resume, and gives up whole recovery units under pressure.

    The host owns the physical blocks and tells the time: `now` is any clock in seconds that does not run
    backwards. A block named in `taken` must not be reused until it is named in `freed`. Not thread-safe.
    """

    def __init__(
        self,
        *,
        block_tokens: int,
        policy: Policy,
        history_tokens: int,
        kv_width: int = 1,
        cost: PrefillCostModel | None = None,
    ) -> None:
        self.policy = policy
        self.cost = cost or policy.settings.cost
        self.counters = Counters()
        self.tree = UnitTree(block_tokens, kv_width)
        self.history = History(block_tokens, history_tokens)
        self.queue = EvictionQueue(policy)
        self.resident_blocks = 0
        self._history_tokens = history_tokens
        self._holds: dict[Hashable, Node[RecoveryUnit]] = {}
        self._parked: dict[Hashable, RecoveryUnit] = {}
        self._serials = count(1)

    # --- what a prefix may resume from ------------------------------------------------------------------

    def lookup(self, path: TokenPath, limit: int) -> HybridState | None:
        """The deepest state that is a prefix of `path`, at most `limit` tokens. Does not mutate. O(depth)."""
        unit = self._deepest(path, limit)
        if unit is None:
            return None
        return HybridState(unit.checkpoint, tuple(self.tree.blocks_of(unit.node)), unit)

    def _deepest(self, path: TokenPath, limit: int) -> RecoveryUnit | None:
        node = next(self.tree.filed(self.tree.find(path, limit).node), None)
        return node.mark if node is not None else None

    def park(self, request: Hashable, unit: RecoveryUnit, now: float) -> None:
        """A waiting request is about to resume at `unit`: evict it only when nothing else is left. Idempotent.

        Of several parked units the one whose first request came last goes first.
        """
        if self._parked.get(request) is unit:
            return
        self.unpark(request, now)
        self._parked[request] = unit
        if unit.parked == 0:
            unit.park_serial = next(self._serials)
        unit.parked += 1
        self.queue.push(unit, now)

    def unpark(self, request: Hashable, now: float) -> None:
        """The waiting request went another way. Idempotent."""
        unit = self._parked.pop(request, None)
        if unit is not None:
            unit.parked -= 1
            self.queue.push(unit, now)

    # --- the life of a request --------------------------------------------------------------------------

    def admit(self, request: Hashable, path: TokenPath, resumed: int, now: float) -> None:
        """`request` starts to run, resumed at `resumed` tokens (0: cold). Its state and KV are held until `release`."""
        self.unpark(request, now)
        assert request not in self._holds, request
        node = self._held_node(path, resumed)
        if node is None:
            return
        node.live += 1
        self._holds[request] = node
        if node.mark is not None:
            self._stamp(node.mark, now)

    def _held_node(self, path: TokenPath, resumed: int) -> Node[RecoveryUnit] | None:
        match = self.tree.find(path, resumed)
        if match.length == resumed and match.into is None and match.node.mark is not None:
            return match.node
        # Not one of our states: only the full blocks are shared with us.
        aligned = match.length // self.tree.block_tokens * self.tree.block_tokens
        if aligned == 0:
            return None
        return self.tree.insert(path, aligned, ()).node

    def observe(self, path: TokenPath, resumed: int) -> Attribution:
        """Count a new request: its ideal position and the cause of every token short of it. Call before `admit`."""
        limit = len(path) - 1
        precedent = self.history.precedent(path, limit)
        resident = self.tree.find(path, limit).length
        attribution = attribute(len(path), resumed, precedent, resident, self.cost)
        self.counters.add(attribution)
        return attribution

    def learn(self, path: TokenPath, now: float) -> None:
        """Let the policy see how far `path` rolled back behind the last request on it. Call before `admit`."""
        precedent = self.history.precedent(path, len(path) - 1)
        if precedent.latest_end is not None:
            rolled_back = max(precedent.latest_end - precedent.computed, 0)
            if self.policy.learn(rolled_back, len(self.queue)):
                self.queue.rebuild(self.units(), now)

    def release(self, request: Hashable, now: float) -> frozenset[int]:
        """`request` ended or was preempted. Returns the blocks no longer held. Idempotent."""
        self.unpark(request, now)
        node = self._holds.pop(request, None)
        if node is None:
            return frozenset()
        node.live -= 1
        if node.mark is not None:
            self._stamp(node.mark, now)
            return frozenset()
        return self._discard(node, now)

    # --- capture and eviction ---------------------------------------------------------------------------

    def capture(
        self, path: TokenPath, checkpoint: Checkpoint, kv: Sequence[KVBlock], now: float, *, room: bool
    ) -> Capture:
        """Offer the state after `checkpoint.position` tokens of `path`, with the KV blocks of that whole prefix.

        `room`: whether a block is free. If not, a newcomer that would be the next victim is not kept. A state
        already held at this position is kept instead of the new one. O(depth + log units) amortised.
        """
        position = checkpoint.position
        assert 0 < position <= len(path), (position, len(path))
        assert len(kv) == -(-position // self.tree.block_tokens), (len(kv), position, self.tree.block_tokens)
        self.history.checkpoint_taken(path, position)
        placed = self.tree.insert(path, position, kv)
        node = placed.node
        if node.mark is not None:
            self._follow(node.mark, now)
            self._stamp(node.mark, now)
            return Capture(False, frozenset(), frozenset())
        unit = RecoveryUnit(self.tree, node, checkpoint, next(self._serials))
        node.mark = unit
        taken = _ids(placed.taken) | set(checkpoint.blocks)
        freed = _ids(placed.freed)
        self.queue.add(unit)
        for below in unit.states_below():
            unit.path_end = max(unit.path_end, below.path_end)
            self.queue.push(below, now)
        self._follow(unit, now)
        self._stamp(unit, now)
        self._push_only_sibling(node, now)
        kept = room or not self._is_next_victim(unit, now)
        if not kept:
            freed |= self._take_out(unit, now)
            self.counters.admissions_refused += 1
        else:
            self.counters.captures[checkpoint.kind] += 1
        self.resident_blocks += len(taken) - len(freed)
        return Capture(kept, frozenset(taken - freed), frozenset(freed - taken))

    def evict(self, now: float) -> Eviction | None:
        """Give up the least valuable unit no live request holds. O(depth + log units).

        When all are held, the one resumed from longest ago goes: its request has a copy of the state and keeps the
        full blocks. None if there are no units.
        """
        victim = self.queue.peek(now)
        if victim is not None:
            unit, rank = victim
            tier = unit.tier
            self.policy.evicted(unit, rank)
        else:
            held = (node.mark for node in self._holds.values() if node.mark is not None)
            oldest = min(held, key=lambda unit: unit.use_serial, default=None)
            if oldest is None:
                return None
            unit, tier = oldest, "held"
            self._loosen(unit.node)
        freed = self._take_out(unit, now)
        self.resident_blocks -= len(freed)
        self.counters.evictions[tier] += 1
        return Eviction(unit.position, tier, frozenset(freed))

    def _loosen(self, node: Node[RecoveryUnit]) -> None:
        """Let the requests that hold `node` hold only the full blocks up to it."""
        position = node.position // self.tree.block_tokens * self.tree.block_tokens
        below = node
        while below.parent is not None and below.parent.position >= position > 0:
            below = below.parent
        if position and below.position > position:
            below = self.tree.split(below, position)
        for request, held in list(self._holds.items()):
            if held is node:
                node.live -= 1
                del self._holds[request]
                if position:
                    below.live += 1
                    self._holds[request] = below

    def skip(self, reason: str) -> None:
        """Count a state that could not be captured."""
        self.counters.captures_skipped[reason] += 1

    def computed(self, path: TokenPath, position: int) -> None:
        """Remember that a request computed `position` tokens of `path`, whether or not a state was kept."""
        if position > 0:
            self.history.computed(path, position)

    def clear(self) -> frozenset[int]:
        """Forget every state, hold and memory, because the host's blocks lost their contents."""
        freed = {block for unit in self.units() for block in unit.checkpoint.blocks}
        freed |= _ids(block for node in self.tree.nodes() for block in node.blocks)
        self.tree = UnitTree(self.tree.block_tokens, self.tree.kv_width)
        self.history = History(self.tree.block_tokens, self._history_tokens)
        self.queue = EvictionQueue(self.policy)
        self._holds.clear()
        self._parked.clear()
        self.resident_blocks = 0
        return frozenset(freed)

    def units(self) -> list[RecoveryUnit]:
        """Every cached unit. Scans."""
        return [node.mark for node in self.tree.nodes() if node.mark is not None]

    def __len__(self) -> int:
        return len(self.queue)

    # --- inside -----------------------------------------------------------------------------------------

    def _stamp(self, unit: RecoveryUnit, now: float) -> None:
        unit.last_use_s = now
        unit.use_serial = next(self._serials)
        self.policy.use(unit)
        self.queue.push(unit, now)

    def _follow(self, unit: RecoveryUnit, now: float) -> None:
        """A request left `unit`: tell the states above. Re-ranks the nearest, and those the policy says have moved."""
        ended = unit.checkpoint.kind == REQUEST_END
        nearest, follow = True, self.policy.follow
        for node in unit.node.ancestors():
            above = node.mark
            if above is None:
                continue
            if follow(above, unit.path_end, ended=ended, nearest=nearest) or nearest:
                self.queue.push(above, now)
            nearest = False

    def _push_only_sibling(self, node: Node[RecoveryUnit], now: float) -> None:
        """The parent's terminal block, kept for a lone child so far, counts for that child from now on."""
        parent = node.parent
        if parent is None or len(parent.children) != 2:
            return
        for sibling in parent.children.values():
            if sibling is not node and sibling.mark is not None:
                self.queue.push(sibling.mark, now)

    def _is_next_victim(self, unit: RecoveryUnit, now: float) -> bool:
        victim = self.queue.peek(now)
        return victim is not None and victim[0] is unit

    def _take_out(self, unit: RecoveryUnit, now: float) -> set[int]:
        node = unit.node
        self.queue.remove(unit)
        if unit.parked:
            self._parked = {request: other for request, other in self._parked.items() if other is not unit}
        node.mark = None
        return set(unit.checkpoint.blocks) | self._discard_node(node, now)

    def _discard(self, node: Node[RecoveryUnit], now: float) -> frozenset[int]:
        freed = self._discard_node(node, now)
        self.resident_blocks -= len(freed)
        return frozenset(freed)

    def _discard_node(self, node: Node[RecoveryUnit], now: float) -> set[int]:
        nearest = next((above.mark for above in node.ancestors() if above.mark is not None), None)
        removed = self.tree.discard(node)
        if removed.grown is not None and removed.grown.mark is not None:
            self.queue.push(removed.grown.mark, now)
        if nearest is not None:
            self.queue.push(nearest, now)
        return _ids(removed.freed)


def _ids(blocks: Iterable[KVBlock]) -> set[int]:
    return {block for position_block in blocks for block in position_block}
