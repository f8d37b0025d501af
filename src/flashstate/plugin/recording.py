"""The keeper and its queue, with every event logged as it comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock

from flashstate.core.state import Checkpoint
from flashstate.core.tree import KVBlock
from flashstate.plugin.event_log import EventLog
from flashstate.plugin.free_queue import HoldingQueue
from flashstate.plugin.keeper import Resume, StateKeeper, how_it_stopped, looks_up
from flashstate.plugin.path import RequestPath
from flashstate.plugin.settings import Settings

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.request import Request


class RecordingQueue(HoldingQueue):
    """A `HoldingQueue` that logs what requests take, use again and let go."""

    def __init__(self, pool: BlockPool, evict: Callable[[], frozenset[int] | None], log: EventLog) -> None:
        super().__init__(pool, evict)
        self._log = log

    @property
    def listed(self) -> int:
        """Blocks free without an eviction."""
        return self._listed

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        self._log.tick()
        if n:
            self._log.write("took", blocks=n, free=self._listed)
        blocks = super().popleft_n(n)
        self._log.took(block.block_id for block in blocks)
        return blocks

    def remove(self, block: KVCacheBlock) -> None:
        super().remove(block)
        self._log.moved("touched", [block.block_id])

    def append_n(self, blocks: list[KVCacheBlock]) -> None:
        super().append_n(blocks)
        self._log.moved("freed", [block.block_id for block in blocks])

    def prepend_n(self, blocks: list[KVCacheBlock]) -> None:
        super().prepend_n(blocks)
        self._log.moved("freed", [block.block_id for block in blocks])


class RecordingKeeper(StateKeeper):
    """A `StateKeeper` that logs what it is told and asked, and beside it what came of it, for comparison."""

    def __init__(
        self, settings: Settings, manager: KVCacheManager, block_size: int, hash_size: int, path: str
    ) -> None:
        """`path`: the log. Raises SettingsError if it cannot be written."""
        self.log = EventLog(path)
        super().__init__(settings, manager, block_size, hash_size)
        self.queue: RecordingQueue = RecordingQueue(self.pool, self._evict, self.log)
        self._asked: dict[str, tuple[int, int, int]] = {}
        self.log.setup(self.cache, self.queue.listed, self.cache.history.max_tokens)

    def _now(self) -> float:
        return self.log.now

    def arrived(self, request: Request) -> None:
        self.log.tick()
        if looks_up(request):
            self.log.write("arrived", **self._told(request))
        super().arrived(request)

    def resume(self, request: Request, found: int, limit: int) -> Resume | None:
        self.log.tick()
        resume = super().resume(request, found, limit)
        if request.prompt_embeds is not None or not self._fits_beside_a_state(request):
            limit = 0
        question = (found, limit, self.log.written)
        # Asked every step while the request waits: when nothing has happened since, neither has this.
        if self._asked.get(request.request_id) != question:
            position = None if resume is None else resume.position
            told = self._told(request)
            self.log.write(
                "lookup", **told, found=found, limit=limit, position=position, held=self._held(request, limit)
            )
            self._asked[request.request_id] = question
        return resume

    def _held(self, request: Request, limit: int) -> list[int]:
        """Positions of the states on the request's path."""
        tree = self.cache.tree
        return [node.position for node in tree.filed(tree.find(self._path(request), limit).node)][::-1]

    def started(self, request: Request) -> None:
        self.log.tick()
        position, _ = self._awaiting[request.request_id]
        is_new, learns = request.num_preemptions == 0, request.prompt_embeds is None
        self.log.write("started", **self._told(request), position=position, new=is_new, learns=learns)
        super().started(request)

    def ended(self, request_id: str, *, is_last: bool = False) -> None:
        self.log.tick()
        self.log.write("ended", request=request_id, last=is_last)
        self.log.forget(request_id)
        self._asked.pop(request_id, None)
        super().ended(request_id, is_last=is_last)

    def clear(self) -> None:
        self.log.tick()
        self.log.write("cleared")
        super().clear()

    def _capture(self, request: Request, position: int) -> None:
        self.log.tick()
        if request.prompt_embeds is None:
            known = min(position, request.num_tokens)
            status, token = how_it_stopped(request)
            self.log.write("computed", **self._told(request), position=known, stop=[status.name, token])
        super()._capture(request, position)

    def _offer(self, request: Request, path: RequestPath, checkpoint: Checkpoint, kv: list[KVBlock]) -> None:
        self.log.tick()
        self.log.write(
            "offered",
            **self._told(request),
            position=checkpoint.position,
            kind=checkpoint.kind,
            state=self.log.names(checkpoint.blocks),
            kv=[self.log.names(blocks) for blocks in kv],
            free=self.queue.listed,
        )
        super()._offer(request, path, checkpoint, kv)

    def _evict(self) -> frozenset[int] | None:
        eviction = self.cache.evict(self._now())
        if eviction is None:
            return None
        self.log.write("evicted", position=eviction.position, tier=eviction.tier)
        return eviction.freed

    def _told(self, request: Request) -> dict[str, Any]:
        return self.log.request(request.request_id, self._path(request), bool(request.resumable))
