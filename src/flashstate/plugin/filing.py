"""Chunks that run over a block boundary, and the state that vLLM must then not file under it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.v1.core.single_type_kv_cache_manager import MambaManager
    from vllm.v1.request import Request


class Filing:
    """Lets a chunk that starts inside a block run past the block's end.

    vLLM would end the chunk there: otherwise the block, which holds the state at the chunk's start, would be hashed as
    that of its boundary. Here the boundary is skipped instead, which saves a warm turn a step.
    """

    def __init__(self, managers: Sequence[MambaManager], block_size: int) -> None:
        """Replaces `cache_blocks` of these managers, not of their class."""
        self._size = block_size
        self._passed: dict[str, int] = {}
        """Index of the block inside which a request's present chunk starts, and whose end it passes."""
        for manager in managers:
            self._guard(manager)

    def chunk(self, request_id: str, start: int, end: int) -> None:
        """The request's next chunk, being scheduled, computes prompt tokens [start, end)."""
        block = start // self._size
        if start % self._size and end > (block + 1) * self._size:
            self._passed[request_id] = block
        else:
            self.forget(request_id)

    def forget(self, request_id: str) -> None:
        """The request's chunk passes no such boundary (any more). Idempotent."""
        self._passed.pop(request_id, None)

    def _guard(self, manager: MambaManager) -> None:
        stock, passed, size = manager.cache_blocks, self._passed, self._size

        def cache_blocks(request: Request, num_tokens: int, *args: Any, **kwargs: Any) -> None:
            block = passed.get(request.request_id)
            filed = manager.num_cached_block
            if block is not None and num_tokens > (block + 1) * size:
                # All up to it are done with: those below were filed, or are null.
                filed[request.request_id] = max(filed.get(request.request_id, 0), block + 1)
            stock(request, num_tokens, *args, **kwargs)

        manager.cache_blocks = cache_blocks
