"""The prompt-end state, kept by ending a prefill chunk there: the fallback where no kernel exports inside a chunk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm.platforms import current_platform

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.request import Request

    from flashstate.plugin.keeper import StateKeeper


@dataclass(frozen=True, slots=True)
class PendingExport:
    """A copy of a running request's state, made by the step being scheduled."""

    request: Request
    position: int
    copies: tuple[KVCacheBlock, ...]


class ChunkEndExport:
    """Ends a prefill chunk one token before the prompt's end and copies the state standing there.

    At len - 1 an identical prompt resumes, and so does one whose answer was rendered anew.
    """

    def __init__(self, keeper: StateKeeper) -> None:
        self._keeper = keeper
        self._pending: list[PendingExport] = []
        self._done: set[str] = set()

    def position(self, request: Request) -> int | None:
        """Where to export; None where vLLM keeps the state anyway, or nothing should be kept."""
        position: int = request.num_prompt_tokens - 1
        if position <= 0 or request.num_output_tokens or request.prompt_embeds is not None:
            return None
        seeded = request.sampling_params is not None and request.sampling_params.seed is not None
        if seeded and current_platform.is_cpu():
            # vLLM's CPU runner dies where a seeded request's chunk ends before its prompt does.
            return None
        return position if position % self._keeper.block_size else None

    def clip(self, request: Request, start: int, wanted: int, split: int) -> int:
        """How many tokens from `start` to compute: `split` of the `wanted` by vLLM's own rule.

        Where the chunk can reach the position to export, it goes there without vLLM's stop at the last block
        boundary: the prompt's end stands in for that state, and no step is added. A chunk that starts inside a
        block must still stop at the next boundary, or vLLM would file the old state under it.
        """
        position = self.position(request)
        if position is None or position <= start:
            return split
        stops_before = start % self._keeper.block_size or start < request.shared_prefix_boundary < position
        if position <= start + wanted and not stops_before:
            return position - start
        return min(split, position - start)

    def queue_copies(self, running: Iterable[Request]) -> None:
        """Before a step is scheduled: queue a copy of each state that stands at its position, for that step.

        The worker copies before it computes. Attention KV is only ever appended to, so it needs no copy.
        """
        for request in running:
            request_id = request.request_id
            if request_id in self._done or request.num_computed_tokens != self.position(request):
                continue
            self._done.add(request_id)
            copies = self._keeper.copy_state(request, request.num_computed_tokens)
            if copies is not None:
                self._pending.append(PendingExport(request, request.num_computed_tokens, copies))

    def publish(self) -> None:
        """After that step was scheduled: offer the copies. Any later step that reads them runs after it."""
        pending, self._pending = self._pending, []
        for export in pending:
            self._keeper.offer_export(export)

    def forget(self, request_id: str) -> None:
        """The request lost its blocks."""
        self._done.discard(request_id)
