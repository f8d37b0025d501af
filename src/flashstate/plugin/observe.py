"""Stock vLLM, watched: the same counters, nothing changed. So that a baseline's misses have reasons too."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger
from vllm.v1.core.kv_cache_utils import get_group_id
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.kv_cache_interface import MambaSpec
from vllm.v1.request import RequestStatus

from flashstate.core.attribution import attribute
from flashstate.core.counters import Counters
from flashstate.core.history import History, Precedent
from flashstate.plugin.keeper import HISTORY_CACHES
from flashstate.plugin.metrics import pack
from flashstate.plugin.path import FeatureNames, RequestPath
from flashstate.plugin.scheduler import _Prepared

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.metrics.stats import SchedulerStats
    from vllm.v1.request import Request

logger = init_logger("vllm.flashstate")


class ObservingScheduler(_Prepared):
    """A `Scheduler` that remembers what was computed and checkpointed, and says why requests fell short of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        managers = self.kv_cache_manager.coordinator.single_type_managers
        self._state_group = next(
            m for m in managers if isinstance(m.kv_cache_spec, MambaSpec)
        ).kv_cache_group_id
        self._kv_group = next(
            m for m in managers if not isinstance(m.kv_cache_spec, MambaSpec)
        ).kv_cache_group_id
        self._hash_ratio = self.block_size // self.hash_block_size
        self._names = FeatureNames()
        pool = self.kv_cache_manager.block_pool
        self._history = History(self.block_size, HISTORY_CACHES * self.block_size * pool.num_gpu_blocks)
        self._checkpointed: OrderedDict[bytes, None] = OrderedDict()
        self._max_checkpointed = HISTORY_CACHES * pool.num_gpu_blocks
        self._awaiting: dict[str, int] = {}
        self.counters = Counters()
        self._watch(pool)
        logger.info("flashstate observes; vLLM's own prefix caching is unchanged")

    def _watch(self, pool: Any) -> None:
        """Note each checkpoint position (its hash) that vLLM files, however short it lives."""
        stock = pool._insert_block_hash

        def insert(block_hash: Any, block: KVCacheBlock, num_tokens: int | None) -> None:
            if get_group_id(block_hash) == self._state_group and not block.is_null:
                self._checkpointed[bytes(block_hash[:-4])] = None
                self.counters.captures["stock"] += 1
                if len(self._checkpointed) > self._max_checkpointed:
                    self._checkpointed.popitem(last=False)
            stock(block_hash, block, num_tokens)

        pool._insert_block_hash = insert

    def _get_local_prefix_cache_hit(
        self, request: Request, *limits: int | None, **named: int | None
    ) -> tuple[KVCacheBlocks, int, int, bool]:
        hit: tuple[KVCacheBlocks, int, int, bool] = super()._get_local_prefix_cache_hit(
            request, *limits, **named
        )
        if self.kv_cache_manager.prefix_cache_lookup_enabled(request) and request.prompt_embeds is None:
            self._awaiting[request.request_id] = hit[1]
        return hit

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        output = super().schedule(*args, **kwargs)
        for request_id in list(self._awaiting):
            request = self.requests.get(request_id)
            if request is None:
                del self._awaiting[request_id]
            elif request.status == RequestStatus.RUNNING:
                resumed = self._awaiting.pop(request_id)
                if request.num_preemptions == 0:
                    self._count(request, resumed)
        return output

    def _count(self, request: Request, resumed: int) -> None:
        path = RequestPath(request, self._hash_ratio, self._names)
        known = self._history.precedent(path, len(path) - 1)
        hashes = request.block_hashes[: known.computed // self.hash_block_size]
        taken = (i for i, hashed in enumerate(hashes, 1) if bytes(hashed) in self._checkpointed)
        checkpoints = tuple(i * self.hash_block_size for i in taken)
        resident = self._resident(hashes)
        precedent = Precedent(known.computed, checkpoints, known.latest_end)
        self.counters.add(attribute(len(path), resumed, precedent, resident, self.settings.cost))

    def _resident(self, hashes: list[Any]) -> int:
        """Tokens of the longest prefix whose attention KV is still there, in whole blocks."""
        pool = self.kv_cache_manager.block_pool
        blocks = 0
        for hashed in hashes[self._hash_ratio - 1 :: self._hash_ratio]:
            if pool.get_cached_block(hashed, [self._kv_group]) is None:
                break
            blocks += 1
        # A checkpoint inside the next block needs a partial block, which goes with the checkpoint's own.
        size: int = self.block_size
        return (blocks + 1) * size - 1

    def _free_request_blocks(self, request: Request) -> None:
        position = min(request.num_computed_tokens, request.num_tokens)
        if position > 0 and request.prompt_embeds is None:
            self._history.computed(RequestPath(request, self._hash_ratio, self._names), position)
        super()._free_request_blocks(request)

    def make_stats(self, *args: Any, **kwargs: Any) -> SchedulerStats | None:
        stats = super().make_stats(*args, **kwargs)
        if stats is not None:
            stats.num_kv_fetch_reqs_by_stage.update(pack(self.counters.snapshot()))
        return stats


class ObservingAsyncScheduler(ObservingScheduler, AsyncScheduler):
    """The same under async scheduling."""
