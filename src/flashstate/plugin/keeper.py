"""Keeps the hybrid states of one engine: what the scheduler asks and tells, in terms of the core."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.kv_cache_interface import MambaSpec
from vllm.v1.request import RequestStatus

from flashstate.core.cache import HybridCache
from flashstate.core.check import check_cache
from flashstate.core.placement.base import Prompt, Spot, prompt_end
from flashstate.core.placement.exact import Exact
from flashstate.core.state import JUNCTION, PROMPT_BOUNDARY, REQUEST_END, Checkpoint, HybridState
from flashstate.core.tree import KVBlock
from flashstate.plugin.client import ends_session, named_positions
from flashstate.plugin.free_queue import HoldingQueue
from flashstate.plugin.path import FeatureNames, RequestPath
from flashstate.plugin.settings import Settings

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.core.single_type_kv_cache_manager import MambaManager
    from vllm.v1.request import Request

    from flashstate.plugin.export import PendingExport

HISTORY_CACHES = 4
"""The memory of what once existed holds this many times the tokens that the cache itself can."""


@dataclass(frozen=True, slots=True)
class Resume:
    """What a request may adopt: blocks for each cache group, valid for exactly `position` tokens."""

    blocks: KVCacheBlocks
    position: int


class StateKeeper:
    """Captures states when requests end, finds them for new ones, and evicts by the policy.

    All calls come from the scheduler's thread. A state is offered only for the position its request had been
    scheduled to: steps run in order, so a later step that reads it runs after the one that wrote it.
    """

    def __init__(self, settings: Settings, manager: KVCacheManager, block_size: int, hash_size: int) -> None:
        self.pool = manager.block_pool
        groups = manager.coordinator.single_type_managers
        self._states = [group for group in groups if isinstance(group.kv_cache_spec, MambaSpec)]
        self._attention = [group for group in groups if not isinstance(group.kv_cache_spec, MambaSpec)]
        self._groups = groups
        self._null = self.pool.null_block
        self.block_size = block_size
        self._hash_ratio = block_size // hash_size
        self._names = FeatureNames()
        self.cache = HybridCache(
            block_tokens=block_size,
            kv_width=len(self._attention),
            policy=settings.make_policy(),
            history_tokens=HISTORY_CACHES * block_size * self.pool.num_gpu_blocks,
        )
        self.queue = HoldingQueue(self.pool, self._evict)
        self._captures_ends = settings.mamba_frontier_checkpoint
        self._exports_prompt_ends = settings.mamba_prefill_export
        self.placement = Exact()
        self._awaiting: dict[str, tuple[int, bool]] = {}
        """Waiting requests looked up so far: where they would resume, and whether at a state of ours."""

    @property
    def recurrent(self) -> list[MambaManager]:
        """vLLM's managers of the recurrent cache groups."""
        return self._states

    @property
    def checkpoint_blocks(self) -> int:
        """Blocks that one checkpoint takes: one for each recurrent cache group."""
        return len(self._states)

    # --- a request's life, in the order the scheduler tells it -------------------------------------------

    def arrived(self, request: Request) -> None:
        """`request` joined the queue (new or preempted): park the state it will resume from until it starts.

        Without this the turns being served evict the states of the turns waiting behind them.
        """
        if not looks_up(request):
            return
        state = self.cache.lookup(self._path(request), request.num_tokens - 1)
        if state is not None:
            self.cache.park(request.request_id, state.unit, self._now())

    def resume(self, request: Request, found: int, limit: int) -> Resume | None:
        """The state to resume `request` from, if deeper than the `found` tokens that vLLM has itself.

        May be asked every step while the request waits; `started` tells when it is over.
        """
        state = None
        if request.prompt_embeds is None and self._fits_beside_a_state(request):
            state = self.cache.lookup(self._path(request), limit)
        now = self._now()
        if state is None or state.position <= found:
            self.cache.unpark(request.request_id, now)
            self._awaiting[request.request_id] = (found, False)
            return None
        self.cache.park(request.request_id, state.unit, now)
        self._awaiting[request.request_id] = (state.position, True)
        return Resume(self._blocks(state), state.position)

    def _fits_beside_a_state(self, request: Request) -> bool:
        """Whether the cache could hold `request` and the state it resumes from, were it alone.

        A resume needs the state it copies, its copy, and the next block's state: a request that fits only without
        them would wait for ever.
        """
        kv = -(-request.num_tokens // self.block_size) + 1
        wanted = kv * len(self._attention)
        for group in self._states:
            wanted += 3 + int(group.kv_cache_spec.num_prefill_checkpoint_blocks > 0)
        total: int = self.pool.num_gpu_blocks
        return bool(wanted <= total - 1)

    @property
    def awaiting(self) -> list[str]:
        """Requests looked up and not started."""
        return list(self._awaiting)

    def started(self, request: Request) -> None:
        """`request` runs from where its last lookup put it."""
        position, ours = self._awaiting.pop(request.request_id)
        path, now = self._path(request), self._now()
        if request.prompt_embeds is None:
            if request.num_preemptions == 0:
                self.cache.observe(path, position)
            turned_back = self.cache.learn(request.request_id, path, now)
            self.placement.learn(turned_back, len(path) - position)
        self.cache.admit(request.request_id, path, position if ours else 0, now)

    def ending(self, request: Request) -> None:
        """`request` is about to lose its blocks (finished, aborted or preempted): capture its state."""
        position = request.num_computed_tokens
        if position > 0 and self.pool.enable_caching:
            self._capture(request, position)

    def ended(self, request_id: str, *, is_last: bool = False) -> None:
        """`request_id` has lost its blocks. `is_last`: its session sends nothing more. Idempotent."""
        self._awaiting.pop(request_id, None)
        release = self.cache.end_session if is_last else self.cache.release
        self.queue.disown(release(request_id, self._now()))

    def clear(self) -> None:
        """Forget everything: the cache's contents became invalid."""
        self._awaiting.clear()
        self.queue.disown(self.cache.clear())

    # --- capture ----------------------------------------------------------------------------------------

    def _capture(self, request: Request, position: int) -> None:
        if request.prompt_embeds is not None:
            self.cache.skip("prompt_embeds")
            return
        path = self._path(request)
        known = min(position, len(path))
        self.cache.computed(request.request_id, path, known, self._now(), how_it_stopped(request))
        doubt = self._doubt(request, position)
        tables = self._tables(request)
        kv = self._kv(tables, position)
        state = self._state_blocks(tables, position)
        if doubt is None and kv is not None and state is not None:
            self._capture_boundaries(request, path, kv, position)
            if self._captures_ends and not ends_session(request):
                self._offer(request, path, Checkpoint(position, state, REQUEST_END), kv)
        else:
            self.cache.skip(doubt or "no_state_block")

    def _doubt(self, request: Request, position: int) -> str | None:
        """Why the state after `position` tokens must not be trusted; None if it may."""
        if position > request.num_tokens:
            return "token_in_flight"
        if request.num_nans_in_logits:
            return "nan_in_logits"
        if request.resumable:
            return "streaming_session"
        return "error" if request.status == RequestStatus.FINISHED_ERROR else None

    def _capture_boundaries(self, request: Request, path: RequestPath, kv: list[KVBlock], end: int) -> None:
        """Keep the states vLLM itself took at block boundaries inside the prompt, as units of their own.

        The prompt's last boundary only stands in for its end: not where that is exported.
        """
        size = self.block_size
        prompt = (request.num_prompt_tokens - 1) // size * size
        junction = request.shared_prefix_boundary // size * size
        for position, kind in sorted({(junction, JUNCTION), (prompt, PROMPT_BOUNDARY)}):
            if not 0 < position < end or (kind == JUNCTION and position == prompt):
                continue
            if (
                kind == PROMPT_BOUNDARY
                and self._exports_prompt_ends
                and position != request.num_prompt_tokens - 1
            ):
                continue
            hashed = request.block_hashes[position // size * self._hash_ratio - 1]
            groups = [group.kv_cache_group_id for group in self._states]
            blocks = self.pool.get_cached_block(hashed, groups)
            if blocks is not None and not any(block.block_id in self.queue.owned for block in blocks):
                ids = tuple(block.block_id for block in blocks)
                self._offer(request, path, Checkpoint(position, ids, kind), kv[: position // size])

    # --- states from inside prompts ---------------------------------------------------------------------

    def path(self, request: Request) -> RequestPath:
        """The request's tokens, as they are filed."""
        return self._path(request)

    def spots(self, request: Request, resumed: int, shared: tuple[int, ...]) -> tuple[Spot, ...]:
        """Positions inside the prompt worth a state: above `resumed`, where there is one.

        `shared`: where prompts that wait or run now part from it.
        """
        path = self._path(request)
        prompt = Prompt(
            tokens=request.num_prompt_tokens,
            resumed=resumed,
            resident=self.cache.resident_tokens(path, request.num_prompt_tokens - 1),
            block_tokens=self.block_size,
            shared=shared,
            named=named_positions(request),
        )
        return self.placement.spots(prompt)

    def deepest(self, request: Request) -> int:
        """Where `request` would resume now, in tokens."""
        state = self.cache.lookup(self._path(request), request.num_tokens - 1)
        return 0 if state is None else state.position

    def prompt_end(self, request: Request) -> Spot:
        """The one position that needs no kernel of ours."""
        return prompt_end(Prompt(request.num_prompt_tokens, 0, 0, self.block_size))

    def best_spot(self, spots: tuple[Spot, ...], start: int, stop: int, below: int) -> Spot | None:
        """The one in (start, stop] that saves most, where a state at `below` is there already."""
        return self.placement.best(spots, start, stop, below, self.cache.cost)

    def blocks_to_export(
        self, request: Request, position: int, end: int
    ) -> tuple[tuple[int, ...], tuple[KVCacheBlock, ...]]:
        """The live blocks of a chunk that ends at `end`, and new ones for its state at `position`; empty if none."""
        live = self._state_blocks(self._tables(request), end)
        copies = None if live is None else self._new_blocks(request, position)
        if live is None:
            self.cache.skip("no_state_block")
        return (live, copies) if live is not None and copies is not None else ((), ())

    def copy_state(self, request: Request, position: int) -> tuple[KVCacheBlock, ...] | None:
        """Queue a copy of `request`'s state for the step being scheduled; the blocks it goes to, or None.

        Only where the rest of `request` has room beside it: a copy that made vLLM preempt the request it is of would be
        made again after every restart, for ever.
        """
        source = self._state_blocks(self._tables(request), position)
        if source is None:
            self.cache.skip("no_state_block")
            return None
        kv = -(-request.num_tokens // self.block_size) - -(-position // self.block_size)
        copies = self._new_blocks(request, position, beside=kv * len(self._attention) + len(self._states))
        for group, block_id, copy in zip(self._states, source, copies or (), strict=bool(copies)):
            original = self.pool.blocks[block_id]
            # vLLM drops one reference of either end while it schedules: too early for the copy, which is offered last.
            original.ref_cnt += 1
            copy.ref_cnt += 1
            group._pending_cow_copies.append((original, copy))
        return copies

    def _new_blocks(
        self, request: Request, position: int, beside: int = 0
    ) -> tuple[KVCacheBlock, ...] | None:
        """A block for each recurrent group, referenced once; None where no state should or can be kept.

        `beside`: blocks to leave free.
        """
        doubt = self._doubt(request, position)
        if doubt is None and self.pool.get_num_free_blocks() < len(self._states) + beside:
            doubt = "no_free_block"
        if doubt is not None:
            self.cache.skip(doubt)
            return None
        return tuple(self.pool.get_new_blocks(len(self._states)))

    def offer_export(self, export: PendingExport) -> None:
        """Offer the copied state of a request that still runs."""
        request, spot = export.request, export.spot
        kv = self._kv(self._tables(request), spot.position)
        if kv is None:
            self.cache.skip("no_kv_block")
        else:
            ids = tuple(copy.block_id for copy in export.copies)
            self._offer(request, self._path(request), Checkpoint(spot.position, ids, spot.kind), kv)
        # Ours alone until now; what was not kept is free again, for steps that run after the one that writes it.
        self.pool.free_blocks(reversed(export.copies))

    def _tables(self, request: Request) -> list[list[KVCacheBlock]]:
        return [group.req_to_blocks.get(request.request_id, []) for group in self._groups]

    def _offer(self, request: Request, path: RequestPath, checkpoint: Checkpoint, kv: list[KVBlock]) -> None:
        room, owner = self.queue.has_room, request.request_id
        got = self.cache.capture(path, checkpoint, kv, self._now(), room=room, request=owner)
        self.queue.own(got.taken, got.freed)

    def _kv(self, tables: list[list[KVCacheBlock]], position: int) -> list[KVBlock] | None:
        """Attention blocks of the first `position` tokens; None if one is missing."""
        count = -(-position // self.block_size)
        rows = [
            [block.block_id for block in table[:count] if not block.is_null]
            for group, table in zip(self._groups, tables, strict=True)
            if group in self._attention
        ]
        if any(len(row) < count for row in rows):
            return None
        return list(zip(*rows, strict=True))

    def _state_blocks(self, tables: list[list[KVCacheBlock]], position: int) -> tuple[int, ...] | None:
        """The blocks holding each recurrent group's state after `position` tokens; None if one is missing."""
        index = -(-position // self.block_size) - 1
        ids = []
        for group, table in zip(self._groups, tables, strict=True):
            if group in self._states:
                if index >= len(table) or table[index].is_null:
                    return None
                ids.append(table[index].block_id)
        return tuple(ids)

    # --- inside -----------------------------------------------------------------------------------------

    def _now(self) -> float:
        return time.monotonic()

    def _path(self, request: Request) -> RequestPath:
        return RequestPath(request, self._hash_ratio, self._names)

    def _blocks(self, state: HybridState) -> KVCacheBlocks:
        """`state` as vLLM wants a prefix hit: attention blocks in full, recurrent groups' last block after nulls."""
        pool = self.pool.blocks
        nulls = [self._null] * (len(state.kv) - 1)
        attention = iter(zip(*state.kv, strict=True))
        checkpoint = iter(state.checkpoint.blocks)
        groups = []
        for group in self._groups:
            if group in self._states:
                groups.append([*nulls, pool[next(checkpoint)]])
            else:
                groups.append([pool[block_id] for block_id in next(attention)])
        return KVCacheBlocks(tuple(groups))

    def _evict(self) -> frozenset[int] | None:
        eviction = self.cache.evict(self._now())
        return None if eviction is None else eviction.freed

    def check(self) -> None:
        """Every invariant: the core's, and free + held + live = total. Scans; raises AssertionError."""
        check_cache(self.cache, self._now())
        owned = {block for unit in self.cache.units() for block in unit.checkpoint.blocks}
        owned |= {block for node in self.cache.tree.nodes() for kv in node.blocks for block in kv}
        assert owned == self.queue.owned, owned ^ self.queue.owned
        blocks = [block for block in self.pool.blocks if not block.is_null]
        free = {block.block_id for block in self.queue.get_all_free_blocks()}
        live = {block.block_id for block in blocks if block.ref_cnt > 0}
        assert not free & live, free & live
        assert len(free) == self.queue.num_free_blocks, (len(free), self.queue.num_free_blocks)
        assert len(free) + len(live) == len(blocks), (len(free), len(live), len(blocks))
        unused = {block_id for block_id in owned if self.pool.blocks[block_id].ref_cnt == 0}
        assert unused == set(self.queue.held), unused ^ set(self.queue.held)


def looks_up(request: Request) -> bool:
    """Whether `request` may resume from a state at all."""
    return request.prompt_embeds is None and not request.skip_reading_prefix_cache


def how_it_stopped(request: Request) -> tuple[RequestStatus, int | None]:
    """What a tool call has and a final answer has not: the status, and the token before the last (`</tool_call>`)."""
    output = request.output_token_ids
    return request.status, output[-2] if len(output) > 1 else None
