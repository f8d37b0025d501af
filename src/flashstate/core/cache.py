"""The cache of hybrid states: the one object a host drives."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Final

from flashstate.core.base import Capture, Eviction, StateCache
from flashstate.core.cost import PrefillCostModel
from flashstate.core.grouped_queue import make_queue
from flashstate.core.history import History
from flashstate.core.path import TokenPath
from flashstate.core.policies.base import Policy
from flashstate.core.state import REQUEST_END, Checkpoint, HybridState, RecoveryUnit, UnitTree
from flashstate.core.thread import Thread
from flashstate.core.tree import KVBlock, Node

_NONE_BEFORE: Final[tuple[int, frozenset[int]]] = (0, frozenset())


@dataclass(frozen=True, slots=True)
class UnitState(HybridState):
    """A hybrid state and the recovery unit that keeps it."""

    unit: RecoveryUnit


class HybridCache(StateCache):
    """Keeps hybrid states and gives up whole recovery units under pressure."""

    def __init__(
        self,
        *,
        block_tokens: int,
        policy: Policy,
        history_tokens: int,
        kv_width: int = 1,
        cost: PrefillCostModel | None = None,
    ) -> None:
        super().__init__(block_tokens, history_tokens, cost or policy.settings.cost)
        self.policy = policy
        self._policy_follows = type(policy).follow is not Policy.follow
        self.tree = UnitTree(block_tokens, kv_width)
        self.queue = make_queue(policy)
        self._history_tokens = history_tokens
        self._holds: dict[Hashable, Node[RecoveryUnit]] = {}
        self._parked: dict[Hashable, RecoveryUnit] = {}
        self._threads: dict[Hashable, Thread] = {}
        self._taken_before: dict[Hashable, tuple[int, frozenset[int]]] = {}
        """Checkpoints that the history knew on a request's path when it came, and what it had forgotten by then."""
        self._serials = count(1)

    # --- what a prefix may resume from ------------------------------------------------------------------

    def lookup(self, path: TokenPath, limit: int) -> UnitState | None:
        """See StateCache. O(depth)."""
        node = next(self.tree.filed(self.tree.find(path, limit).node), None)
        if node is None or node.mark is None:
            return None
        unit, kv = node.mark, tuple(self.tree.blocks_of(node))
        return UnitState(unit.checkpoint, kv, not node.children, unit)

    def resident(self, path: TokenPath, limit: int) -> list[KVBlock]:
        match = self.tree.find(path, limit)
        blocks = [block for node in reversed(match.node.chain()) for block in node.blocks]
        if match.into is not None:
            blocks += match.into.blocks
        del blocks[match.length // self.block_tokens :]
        return blocks

    def resident_tokens(self, path: TokenPath, limit: int) -> int:
        return self.tree.find(path, limit).length

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
        aligned = match.length // self.block_tokens * self.block_tokens
        if aligned == 0:
            return None
        return self.tree.insert(path, aligned, ()).node

    def learn(self, request: Hashable, path: TokenPath, now: float) -> int | None:
        precedent = self.history.precedent(path, len(path) - 1)
        self._taken_before[request] = self.history.forgets, frozenset(precedent.checkpoints)
        before, end = precedent.thread, precedent.latest_end
        if before is None or end is None:
            self._threads[request] = Thread(now).started(request, len(path), now)
            return None
        left_at, last_prompt = precedent.computed, before.prompt_tokens
        if self.policy.learn(before, max(end - left_at, 0), len(self.queue), now):
            self.queue.rebuild(self.units(), now)
        # The last token of an identical prompt is computed again: that is no turning back.
        if not before.running and left_at >= min(end, len(path) - 1):
            self._threads[request] = before.started(request, len(path), now)
            self._moved(before, now)
            return None
        self._threads[request] = before.branched(request, len(path), now)
        self._moved(before, now)
        return last_prompt - left_at

    def computed(
        self, request: Hashable, path: TokenPath, position: int, now: float, hint: Hashable = None
    ) -> None:
        thread = self._threads.get(request)
        if thread is not None:
            thread.ended(request, position, hint, now)
            self._moved(thread, now)
        if position > 0:
            self.history.computed(path, position, thread)

    def release(self, request: Hashable, now: float) -> frozenset[int]:
        self.unpark(request, now)
        self._taken_before.pop(request, None)
        thread = self._threads.pop(request, None)
        if thread is not None and thread.stopped(request, now):
            self._moved(thread, now)
        node = self._holds.pop(request, None)
        if node is None:
            return frozenset()
        node.live -= 1
        if node.mark is not None:
            self._stamp(node.mark, now)
            return frozenset()
        return self._discard(node, now)

    def end_session(self, request: Hashable, now: float) -> frozenset[int]:
        """`release`, and give up what only this conversation used: it will send nothing more. Idempotent."""
        thread = self._threads.get(request)
        freed = set(self.release(request, now))
        if thread is None or thread.running:
            return frozenset(freed)
        # From the deepest up: what still has a state below it then, others go on from.
        for unit in sorted(thread.units, key=lambda unit: -unit.position):
            if not (unit.is_held or unit.parked or unit.below[0]):
                taken = self._take_out(unit, now)
                self.resident_blocks -= len(taken)
                self.counters.evictions["ended"] += 1
                freed |= taken
        return frozenset(freed)

    # --- capture and eviction ---------------------------------------------------------------------------

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
        """See StateCache. Without room, a newcomer that would be the next victim is not kept.

        O(depth + log units) amortised.
        """
        position = checkpoint.position
        assert len(kv) == -(-position // self.block_tokens), (len(kv), position, self.block_tokens)
        forgets, taken_before = self._taken_before.get(request, _NONE_BEFORE)
        if position not in taken_before or forgets != self.history.forgets:
            self.history.checkpoint_taken(path, position)
        placed = self.tree.insert(path, position, kv)
        node, thread = placed.node, self._threads.get(request)
        if node.mark is not None:
            self._join(node.mark, thread)
            self._follow(node.mark, now)
            self._stamp(node.mark, now)
            return Capture(kept=False)
        unit = RecoveryUnit(self.tree, node, checkpoint, next(self._serials))
        node.mark = unit
        self._join(unit, thread)
        taken, freed = _ids(placed.taken), _ids(placed.freed)
        taken.update(checkpoint.blocks)
        self.queue.add(unit)
        if node.children:
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
        if not freed:
            return Capture(kept, frozenset(taken))
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
        position = node.position // self.block_tokens * self.block_tokens
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

    def clear(self) -> frozenset[int]:
        """Forget every state, hold and memory, because the host's blocks lost their contents."""
        freed = {block for unit in self.units() for block in unit.checkpoint.blocks}
        freed |= _ids(block for node in self.tree.nodes() for block in node.blocks)
        self.tree = UnitTree(self.block_tokens, self.tree.kv_width)
        self.history = History(self.block_tokens, self._history_tokens)
        self.queue = make_queue(self.policy)
        self._holds.clear()
        self._parked.clear()
        self._threads.clear()
        self._taken_before.clear()
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
        """A request left `unit`: tell the states above. Re-ranks the nearest, and those that have moved."""
        ended = unit.checkpoint.kind == REQUEST_END
        nearest, thread = True, unit.thread
        follow = self.policy.follow if self._policy_follows else None
        node = unit.node.parent
        while node is not None:
            if (above := node.mark) is not None:
                joined = above.thread is not thread and self._join(above, thread)
                fell = follow is not None and follow(above, unit.path_end, ended=ended, nearest=nearest)
                if fell or nearest or joined:
                    self.queue.push(above, now)
                nearest = False
            node = node.parent

    def _join(self, unit: RecoveryUnit, thread: Thread | None) -> bool:
        """`thread` went through `unit` last. True if another did before."""
        if thread is None or unit.thread is thread:
            return False
        if unit.thread is not None:
            unit.thread.units.discard(unit)
        thread.units.add(unit)
        unit.thread = thread
        return True

    def _moved(self, thread: Thread, now: float) -> None:
        if self.policy.moved(thread, now):
            self.queue.push_thread(thread, now)

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
        if unit.thread is not None:
            unit.thread.units.discard(unit)
        if unit.parked:
            self._parked = {request: other for request, other in self._parked.items() if other is not unit}
        node.mark = None
        freed = self._discard_node(node, now)
        freed.update(unit.checkpoint.blocks)
        return freed

    def _discard(self, node: Node[RecoveryUnit], now: float) -> frozenset[int]:
        freed = self._discard_node(node, now)
        self.resident_blocks -= len(freed)
        return frozenset(freed)

    def _discard_node(self, node: Node[RecoveryUnit], now: float) -> set[int]:
        above = node.parent
        while above is not None and above.mark is None:
            above = above.parent
        nearest = above.mark if above is not None else None
        removed = self.tree.discard(node)
        if removed.grown is not None and removed.grown.mark is not None:
            self.queue.push(removed.grown.mark, now)
        if nearest is not None:
            self.queue.push(nearest, now)
        return _ids(removed.freed)


def _ids(blocks: Iterable[KVBlock]) -> set[int]:
    return set(chain.from_iterable(blocks))
