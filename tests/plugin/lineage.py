"""By which chunks the content of every block was computed: the histories that make an exact replay possible.

Rounding depends on how a prompt was cut into chunks, so a request that resumed from a state equals, bit for bit, only
a replay that follows the chunks by which that state (and the KV before it) came to be. Nothing of ours is asked here:
histories follow the physical blocks, so a state adopted at a position it was not computed for has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import Any

Chunk = tuple[int, int]
"""Start position and tokens of one scheduled step."""

History = tuple[Chunk, ...]
"""Chunks from position 0 on. It begins with a negative start where it could not be reconstructed."""


@dataclass(frozen=True)
class Segment:
    """A stretch of one request's life between two (re)starts."""

    first_output: int
    """Tokens the request had put out before."""
    resumed: int
    history: History

    @property
    def is_exact(self) -> bool:
        """Whether a replay can follow it."""
        return not self.history or self.history[0][0] == 0

    @property
    def end(self) -> int:
        """Position computed up to."""
        start, tokens = self.history[-1] if self.history else (self.resumed, 0)
        return start + tokens


class Lineage:
    """Watches one scheduler."""

    def __init__(self, scheduler: Any) -> None:
        from vllm.v1.kv_cache_interface import MambaSpec

        self.scheduler = scheduler
        self.block_size = scheduler.block_size
        groups = scheduler.kv_cache_manager.coordinator.single_type_managers
        self.groups = [(isinstance(group.kv_cache_spec, MambaSpec), group) for group in groups]
        self.contents: dict[int, History] = {}
        """By block id: how it was last written."""
        self.segments: dict[str, list[Segment]] = {}
        self._found: dict[str, tuple[int, History]] = {}
        self._unknown = count(1)
        stock = scheduler._get_local_prefix_cache_hit

        def looking_up(request: Any, *args: Any, **kwargs: Any) -> Any:
            hit = stock(request, *args, **kwargs)
            self._found[request.request_id] = self._adoptable(hit[0].blocks, hit[1])
            return hit

        scheduler._get_local_prefix_cache_hit = looking_up

    def _adoptable(self, blocks: Any, position: int) -> tuple[int, History]:
        """The history of the state found at `position`."""
        if position == 0:
            return 0, ()
        last = -(-position // self.block_size) - 1
        rows = [
            (is_state, [block.block_id for block in row])
            for (is_state, _), row in zip(self.groups, blocks, strict=True)
        ]
        (history, *others) = {self.contents.get(row[last], ()) for is_state, row in rows if is_state}
        if others or not history or sum(history[-1]) != position:
            return position, self._lost()
        for is_state, row in rows:
            for index, block in enumerate(() if is_state else row[: last + 1]):
                stop = min(position, (index + 1) * self.block_size)
                written = _until(stop, self.contents.get(block, ()))
                if not written or sum(written[-1]) < stop or not _begins_with(history, written):
                    return position, self._lost()
        return position, history

    def _lost(self) -> History:
        return ((-next(self._unknown), 0),)

    def scheduled(self, output: Any) -> None:
        """One step was planned: follow it. Its copies run before it computes, all at once."""
        copies = [(to, self.contents.get(source, ())) for source, to in output.kv_cache_block_copies or ()]
        self.contents.update(copies)
        exports = getattr(output, "flashstate_exports", {})
        for request_id, tokens in output.num_scheduled_tokens.items():
            request = self.scheduler.requests[request_id]
            start = request.num_computed_tokens - tokens
            segments = self.segments.setdefault(request_id, [])
            if request_id in self._found:
                resumed, history = self._found.pop(request_id)
                assert start == resumed, (start, resumed)
                segments.append(Segment(request.num_output_tokens, resumed, history))
            segments[-1] = replace(segments[-1], history=(*segments[-1].history, (start, tokens)))
            self._written(request_id, start, start + tokens, segments[-1].history, exports)

    def _written(
        self,
        request_id: str,
        start: int,
        end: int,
        history: History,
        exports: Mapping[int, tuple[int, int]],
    ) -> None:
        last = -(-end // self.block_size) - 1
        for is_state, group in self.groups:
            table = group.req_to_blocks[request_id]
            for index in range(last if is_state else start // self.block_size, last + 1):
                self.contents[table[index].block_id] = history
            if is_state and table[last].block_id in exports:
                offset, to = exports[table[last].block_id]
                self.contents[to] = (*history[:-1], (start, offset))


def _until(position: int, history: History) -> History:
    return tuple(takewhile(lambda chunk: chunk[0] < position, history))


def _begins_with(history: History, written: History) -> bool:
    """Whether KV `written` so is what `history` wrote. An export cuts the state's last chunk short, not the KV's."""
    *before, (start, tokens) = written
    return history[: len(written)] == written or (
        (*before, history[-1]) == history and history[-1][0] == start and history[-1][1] < tokens
    )
