"""States from inside prompts: which are worth keeping, and how each is had."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm.platforms import current_platform
from vllm.v1.request import RequestStatus

from flashstate.core.live import LivePrompts
from flashstate.core.placement.base import Spot
from flashstate.core.placement.exact import LEAST_TOKENS
from flashstate.plugin.client import ends_session
from flashstate.plugin.filing import Filing
from flashstate.plugin.keeper import looks_up
from flashstate.plugin.step_exports import ATTRIBUTE

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

    from flashstate.plugin.keeper import StateKeeper


@dataclass(frozen=True, slots=True)
class PendingExport:
    """A copy of a running request's state, made by the step being scheduled."""

    request: Request
    spot: Spot
    copies: tuple[KVCacheBlock, ...]
    """Referenced once for us until it is offered."""


@dataclass(slots=True)
class _Plan:
    """What is worth keeping of one prompt, and the nearest state below what is not computed yet."""

    spots: tuple[Spot, ...]
    below: int


class PromptExport:
    """Takes at most one state from each prefill chunk.

    In the chunk, where the worker's kernels can (`in_chunk`): the chunk goes as far as vLLM's budget lets it, and a
    step is saved where vLLM would stop at a block boundary for a state of its own. Otherwise by ending a chunk one
    token before the prompt's end and copying the state that stands there; junctions are then vLLM's own, at blocks.
    """

    def __init__(self, keeper: StateKeeper, *, in_chunk: bool) -> None:
        self._keeper = keeper
        self.in_chunk = in_chunk
        self._filing = Filing(keeper.recurrent if in_chunk else (), keeper.block_size)
        self._live = LivePrompts(keeper.block_size)
        """Prompts that wait or are being computed."""
        self._computing = LivePrompts(keeper.block_size)
        """Those that are being computed, or would be had vLLM had room."""
        self._held: dict[str, tuple[Hashable, int]] = {}
        """What a waiting prompt waits for: another request, and the position it will leave a state at."""
        self._plans: dict[str, _Plan] = {}
        self._pending: list[PendingExport] = []

    # --- while vLLM schedules ---------------------------------------------------------------------------

    def clip(self, request: Request, start: int, wanted: int, split: int) -> int:
        """How many tokens from `start` to compute: `split` of the `wanted` by vLLM's own rule."""
        self._filing.forget(request.request_id)
        if not _exports(request) or start >= request.num_prompt_tokens:
            return split
        size = self._keeper.block_size
        if self.in_chunk:
            return self._run(request, start, wanted, split)
        position = _chunk_end(request, size)
        if position is None or position <= start:
            return split
        stops_before = start % size or start < request.shared_prefix_boundary < position
        if position <= start + wanted and not stops_before:
            return position - start
        return min(split, position - start)

    def _run(self, request: Request, start: int, wanted: int, split: int) -> int:
        """As far as the budget lets the chunk go: to the prompt's end, or else to a block's."""
        size = self._keeper.block_size
        end = start + wanted
        if end < request.num_prompt_tokens:
            end = max(end // size * size, start + split)
        self._filing.chunk(request.request_id, start, end)
        return end - start

    def arrived(self, request: Request) -> None:
        """`request` joined the queue (new or preempted)."""
        if self.in_chunk and looks_up(request):
            self._live.add(request.request_id, self._keeper.path(request))

    def waits(self, request: Request, requests: Mapping[Hashable, Request]) -> bool:
        """Whether another prompt that runs will soon leave a state where `request` parts from it.

        Beginning now would compute the same tokens beside it. Never waits for one that waits itself. Asked of each
        waiting request in each step, before it starts.
        """
        if not self.in_chunk or not looks_up(request):
            return False
        request_id = request.request_id
        if self._will_leave(requests, *self._held.get(request_id, (None, 0))):
            return True
        path, resumed = self._keeper.path(request), None
        for position, other in self._computing.partings(path, request_id):
            if not self._will_leave(requests, other, position):
                continue
            resumed = self._keeper.deepest(request) if resumed is None else resumed
            if position < resumed + LEAST_TOKENS:
                break
            self._held[request_id] = (other, position)
            return True
        self._held.pop(request_id, None)
        # It starts now, if vLLM has room: others of this step may wait for it.
        self._computing.add(request_id, path)
        return False

    def _will_leave(self, requests: Mapping[Hashable, Request], other_id: Hashable, position: int) -> bool:
        other = requests.get(other_id)
        return (
            other is not None
            and other.status == RequestStatus.RUNNING
            and other.num_computed_tokens < min(position, other.num_prompt_tokens - 1)
            and _exports(other)
        )

    # --- before and after a step is scheduled -----------------------------------------------------------

    def queue_copies(self, running: Iterable[Request]) -> None:
        """Before: queue a copy of each state that stands where one is wanted, for the step to come.

        The worker copies before it computes. Attention KV is only ever appended to, so it needs no copy.
        """
        for request in running:
            position, plan = request.num_computed_tokens, self._plans.get(request.request_id)
            if plan is None or position <= plan.below:
                continue
            spot = next((spot for spot in plan.spots if spot.position == position), None)
            if spot is not None:
                plan.below = position
                copies = self._keeper.copy_state(request, position)
                if copies is not None:
                    self._pending.append(PendingExport(request, spot, copies))

    def order(self, output: SchedulerOutput, requests: dict[str, Request]) -> None:
        """After: order from the workers the best state inside each prefill chunk of the step. Mutates `output`."""
        exports: dict[int, tuple[int, int]] = {}
        for request_id, tokens in output.num_scheduled_tokens.items():
            request = requests[request_id]
            end = request.num_computed_tokens
            start = end - tokens
            if start >= request.num_prompt_tokens or not _exports(request):
                self.forget(request_id)
                continue
            plan = self._plan(request, start)
            spot = self._keeper.best_spot(plan.spots, start, end, plan.below)
            # What stands at the chunk's end is copied before the next step.
            if spot is None or spot.position == end or not self.in_chunk:
                continue
            live, copies = self._keeper.blocks_to_export(request, spot.position, end)
            for block, copy in zip(live, copies, strict=True):
                exports[block] = (spot.position - start, copy.block_id)
            if copies:
                plan.below = spot.position
                self._pending.append(PendingExport(request, spot, copies))
        if exports:
            setattr(output, ATTRIBUTE, exports)

    def publish(self) -> None:
        """Last: offer what this step will write. Any later step that reads it runs after it."""
        pending, self._pending = self._pending, []
        for export in pending:
            self._keeper.offer_export(export)

    def forget(self, request_id: str) -> None:
        """The request lost its blocks, or its prompt is computed. Idempotent."""
        self._plans.pop(request_id, None)
        self._held.pop(request_id, None)
        self._filing.forget(request_id)
        self._live.remove(request_id)
        self._computing.remove(request_id)

    def _plan(self, request: Request, start: int) -> _Plan:
        """Made anew for each chunk: prompts that came since may part from this one further on."""
        known = self._plans.get(request.request_id)
        if self.in_chunk:
            shared = self._live.shared(request.request_id)
            spots = self._keeper.spots(request, start if known is None else known.below, shared)
        else:
            position = _chunk_end(request, self._keeper.block_size)
            spots = () if position is None else (self._keeper.prompt_end(request),)
        plan = self._plans.setdefault(request.request_id, _Plan(spots, start))
        plan.spots = spots
        return plan


def _exports(request: Request) -> bool:
    return not request.num_output_tokens and request.prompt_embeds is None and not ends_session(request)


def _chunk_end(request: Request, block_size: int) -> int | None:
    """Where to end a chunk; None where vLLM keeps the state anyway."""
    position: int = request.num_prompt_tokens - 1
    seeded = request.sampling_params is not None and request.sampling_params.seed is not None
    if seeded and current_platform.is_cpu():
        # vLLM's CPU runner dies where a seeded request's chunk ends before its prompt does.
        return None
    return position if position > 0 and position % block_size else None
