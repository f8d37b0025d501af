"""GreedyDual-Size that leaves out of a state's size what a running request needs too."""

from __future__ import annotations

from flashstate.core.cache import HybridCache
from flashstate.core.placement.base import Placement
from flashstate.core.policies.base import PolicySettings
from flashstate.core.policies.gds import GreedyDualSize
from flashstate.core.state import RecoveryUnit
from flashstate.core.tree import Node
from flashstate.simulate.engine_cache import EngineCache, Running
from flashstate.simulate.pool import Pool


class LiveSizes(GreedyDualSize):
    """Equation 7 with size(u) to the letter: without KV that a live request needs, which eviction would not free.

    `size_blocks`, which the other policies use, counts that KV: it is free as soon as the request ends.
    """

    # Not registered: it needs to know what is running.
    def __init__(self, settings: PolicySettings, pool: Pool) -> None:
        super().__init__(settings)
        self._pool = pool

    def density(self, unit: RecoveryUnit) -> float:
        """Prefill seconds saved for each block that is free at once."""
        return self.settings.cost.seconds(unit.fallback, unit.position) / self.size(unit)

    def size(self, unit: RecoveryUnit) -> int:
        """Blocks that evicting `unit` frees now."""
        node, size = unit.node, len(unit.checkpoint.blocks)
        if node.children:
            return size
        mine = node.blocks[unit.tree.retained_by_parent(node) :]
        return size + sum(not self._pool.is_shared(block) for (block,) in mine)


class LiveSizeCache(EngineCache):
    """Ranks a conversation's deepest states again when a request of it ends: they have grown."""

    def __init__(self, cache: HybridCache, placement: Placement, pool: Pool, checkpoint_blocks: int) -> None:
        super().__init__(cache, placement, pool, checkpoint_blocks)
        self._units = cache

    def stop(self, running: Running, tokens: int, now: float, hint: str) -> None:
        """See EngineCache."""
        super().stop(running, tokens, now, hint)
        root = self._units.tree.roots.get(running.request.path.namespace)
        pending: list[Node[RecoveryUnit]] = [] if root is None else [root]
        while pending:
            node = pending.pop()
            if node.mark is not None and not node.children:
                self._units.queue.push(node.mark, now)
            pending += node.children.values()
