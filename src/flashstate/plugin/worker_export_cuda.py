"""The worker's side of in-chunk export on CUDA: vLLM's gated delta rule, called twice for a state from between.

Python runs around these kernels in every step that prefills: the layer's core is an op at which vLLM splits its graphs,
and full graphs hold decodes alone. Blocks and offsets are as in `worker_export`. Two recipes:

- vLLM's Triton kernels (`forward_native`), float32 states: `kernels.split_batch` on their 64-token grid;
- any other: the stock call as it is, and a second one of the tokens before each offset. It costs as much again of this
  kernel, and needs nothing of its tiles.

**This has not run on a GPU.** The tests run it on a CPU, in Triton's interpreter.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import torch
from vllm.forward_context import get_forward_context

from flashstate.kernels.split_batch import Call, Piece, export_from_batch, split_batch, token_bounds
from flashstate.plugin.seams import SeamError
from flashstate.plugin.step_exports import ExportError, Exports, Row
from flashstate.plugin.worker_export import MARK, export_convolution, replace, wrap_worker

GRID: Final = 64
"""Tokens: the tile of vLLM's Triton kernels, its FLA_CHUNK_SIZE."""
METADATA: Final = (
    "num_prefills",
    "num_decode_tokens",
    "chunk_indices",
    "chunk_offsets",
    "prefill_query_start_loc",
    "prefill_state_indices",
    "prefill_has_initial_state",
)
"""Fields of vLLM's GDNAttentionMetadata that we read, or that its kernels take."""


@dataclass(frozen=True, eq=False)
class _Launch(Call):
    """A call, and what vLLM's kernels take with it, on the device."""

    cu_seqlens: torch.Tensor
    chunk_indices: torch.Tensor
    chunk_offsets: torch.Tensor


@dataclass(frozen=True, eq=False)
class _Batch:
    """The prefill sequences of a step, as the layers of one KV cache group share them."""

    rows: list[Row]
    """Counted in all tokens of the step, decodes too."""
    bounds: list[int]
    """[N + 1], counted in prefill tokens alone."""
    device: torch.device

    @functools.cached_property
    def split(self) -> tuple[_Launch | None, _Launch | None, tuple[int, ...]]:
        """Both calls on the grid, and the rows whose export the first one leaves."""
        parts = split_batch(self.bounds, [row.offset for row in self.rows], GRID)
        return self._launch(parts.first, ()), self._launch(parts.rest, parts.copies), parts.ready

    @functools.cached_property
    def before(self) -> _Launch | None:
        """The tokens before each offset."""
        starts = enumerate(zip(self.bounds[:-1], self.rows, strict=True))
        return self._launch((), tuple(Piece(n, at, at + row.offset) for n, (at, row) in starts if row.offset))

    def _launch(self, live: tuple[Piece, ...], copies: tuple[Piece, ...]) -> _Launch | None:
        from vllm.third_party.flash_linear_attention.ops.index import (
            prepare_chunk_indices,
            prepare_chunk_offsets,
        )
        from vllm.utils.torch_utils import async_tensor_h2d

        pieces = live + copies
        if not pieces:
            return None
        # On the host and by vLLM's own functions, as its metadata builder does: kernels are tuned apart by types.
        bounds = torch.tensor(token_bounds(pieces), dtype=torch.int32)
        rows = torch.tensor([piece.row for piece in pieces])
        parts = (rows, bounds, prepare_chunk_indices(bounds, GRID), prepare_chunk_offsets(bounds, GRID))
        return _Launch(live, copies, *(async_tensor_h2d(part, device=self.device) for part in parts))


@dataclass(eq=False, slots=True)
class _Step:
    """What the step that runs exports."""

    exports: Exports = field(default_factory=dict)
    batches: dict[int, _Batch] | None = None
    """By the id of their metadata; None until the first layer asks."""
    running: _Batch | None = None
    """That of the layer that runs, if it exports."""
    exported: dict[int, torch.Tensor] = field(default_factory=dict)
    """What that layer's kernel gave, by row."""
    expected: set[tuple[str, int]] = field(default_factory=set)
    """Layers, each with a block that it must write."""
    written: set[tuple[str, int]] = field(default_factory=set)

    @contextmanager
    def exporting(self, exports: Exports) -> Iterator[None]:
        """One step of the worker."""
        self.exports = exports
        try:
            yield
            if exports:
                self.check()
        finally:
            self.exports, self.batches = {}, None
            self.expected, self.written = set(), set()

    @contextmanager
    def inside(self, batch: _Batch) -> Iterator[None]:
        """One layer of it that exports."""
        self.running, self.exported = batch, {}
        try:
            yield
        finally:
            self.running, self.exported = None, {}

    def batch_of(self, layer: str) -> _Batch | None:
        """What `layer` exports in the running forward pass; None: nothing."""
        every = get_forward_context().attn_metadata if self.exports else None
        if not isinstance(every, dict) or layer not in every:
            return None
        if self.batches is None:
            self.batches = _batches(every, self.exports)
            for name, metadata in every.items():
                batch = self.batches.get(id(metadata))
                if batch is not None:
                    self.expected |= {(name, row.destination) for row in batch.rows if row.offset}
        return self.batches.get(id(every[layer]))

    def check(self) -> None:
        """Raise ExportError unless every layer has written what the scheduler counts on."""
        ordered = {destination for _, destination in self.exports.values()}
        missing = ordered - {destination for _, destination in self.expected}
        if missing or self.written != self.expected:
            silent = sorted({name for name, _ in self.expected - self.written})
            raise ExportError(
                f"of {len(ordered)} blocks ordered for states, {len(missing)} are no layer's, and {len(silent)} layers "
                f"wrote less than theirs ({', '.join(silent[:3])}): flashstate does not know this model's kernels; "
                "serve it with --in-chunk-export off"
            )


def _batches(every: Mapping[str, Any], exports: Exports) -> dict[int, _Batch]:
    """The batches that export, by the id of their metadata. Waits for the device: once a step, for all groups."""
    from vllm.utils.gpu_sync_debug import gpu_sync_allowed
    from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadata

    known = {
        id(metadata): metadata
        for metadata in every.values()
        if isinstance(metadata, GDNAttentionMetadata) and metadata.num_prefills
    }
    if not known:
        return {}
    parts = [
        part.to(torch.int64)
        for metadata in known.values()
        for part in (
            metadata.prefill_query_start_loc,
            metadata.prefill_state_indices,
            metadata.prefill_has_initial_state,
        )
    ]
    with gpu_sync_allowed():
        values = iter(torch.cat(parts).tolist())
    lists = iter([[next(values) for _ in range(part.numel())] for part in parts])
    found = {}
    for key, metadata in known.items():
        bounds, blocks, has_state = next(lists), next(lists), next(lists)
        if any(block in exports for block in blocks):
            first = metadata.num_decode_tokens
            rows = [
                Row(first + begin, first + end, block, bool(warm), *exports.get(block, (0, 0)))
                for (begin, end), block, warm in zip(pairwise(bounds), blocks, has_state, strict=True)
            ]
            found[key] = _Batch(rows, bounds, metadata.prefill_query_start_loc.device)
    return found


def install() -> None:
    """Wrap vLLM's worker and, once a worker has its device, the layers. Idempotent.

    Not the layers at once: their module asks for the device as it is imported, which no other process must do.
    """
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    if hasattr(WorkerWrapperBase.execute_model, MARK):
        return
    step = _Step()

    def make(stock: Callable[..., Any]) -> Callable[..., Any]:
        def init_device(self: Any) -> Any:
            result = stock(self)
            hook_layers(step)
            return result

        return init_device

    replace(WorkerWrapperBase, "init_device", make)
    wrap_worker(WorkerWrapperBase, step.exporting)


def hook_layers(step: _Step) -> None:
    """Wrap the gated delta rule and the layer around it. Idempotent. Raises SeamError for metadata we do not know."""
    from vllm.model_executor.layers.mamba.gdn import qwen_gdn_linear_attn as gdn
    from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadata

    missing = set(METADATA) - {known.name for known in dataclasses.fields(GDNAttentionMetadata)}
    if missing:
        raise SeamError(
            f"GDNAttentionMetadata has no {', '.join(sorted(missing))}: flashstate cannot export inside chunks of this "
            "vLLM; serve with --in-chunk-export off"
        )
    if hasattr(gdn.QwenGatedDeltaNetAttention._forward_core, MARK):
        return
    replace(gdn.QwenGatedDeltaNetAttention, "_forward_core", functools.partial(_exporting_layer, step))
    for method, has_grid in (("forward_native", True), ("forward_cuda", False)):
        make = functools.partial(_exporting_rule, step, has_grid)
        replace(gdn.ChunkGatedDeltaRule, method, make)


def _exporting_layer(step: _Step, stock: Callable[..., Any]) -> Callable[..., Any]:
    """The layer's core: exports its convolution itself, and puts away what the rule inside it exports."""
    from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first

    def _forward_core(
        self: Any, mixed_qkv: torch.Tensor, b: torch.Tensor, a: torch.Tensor, core_attn_out: torch.Tensor
    ) -> Any:
        batch = step.batch_of(self.prefix)
        if batch is None:
            return stock(self, mixed_qkv, b, a, core_attn_out)
        convolution, states = self.kv_cache[0], self.kv_cache[1]
        pool = convolution if is_conv_state_dim_first() else convolution.transpose(-1, -2)
        export_convolution(batch.rows, mixed_qkv.transpose(0, 1), pool)
        with step.inside(batch):
            result = stock(self, mixed_qkv, b, a, core_attn_out)
            for row, state in step.exported.items():
                destination = batch.rows[row].destination
                states[destination].copy_(state)
                step.written.add((self.prefix, destination))
        return result

    return _forward_core


def _exporting_rule(step: _Step, has_grid: bool, stock: Callable[..., Any]) -> Callable[..., Any]:
    """The recurrence over a batch of sequences."""

    def forward(
        self: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        initial_state: torch.Tensor,
        output_final_state: bool,
        cu_seqlens: torch.Tensor | None = None,
        **rest: Any,
    ) -> Any:
        tokens = (q, k, v, g, beta)
        batch = step.running
        if batch is None:
            return stock(self, *tokens, initial_state, output_final_state, cu_seqlens, **rest)

        def run(launch: _Launch, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            chunks = {"chunk_indices": launch.chunk_indices, "chunk_offsets": launch.chunk_offsets}
            given = {**rest, **chunks, "core_attn_out": None}
            parts = [launch.gather(part) for part in tokens]
            result: tuple[torch.Tensor, torch.Tensor]
            result = stock(self, *parts, states, True, launch.cu_seqlens, **given)
            return result

        # Between calls a state must not be rounded, nor may the second one be tuned for another type than the first.
        if has_grid and initial_state.dtype == torch.float32:
            output, out = torch.empty_like(v), rest.get("core_attn_out")
            final, step.exported = export_from_batch(run, *batch.split, initial_state, output)
            if out is not None:
                out.view(-1)[: output.numel()].copy_(output.view(-1))
            return output, final
        before = batch.before
        if before is not None:
            _, ends = run(before, initial_state.index_select(0, before.rows))
            step.exported = {piece.row: ends[index] for index, piece in enumerate(before.copies)}
        return stock(self, *tokens, initial_state, output_final_state, cu_seqlens, **rest)

    return forward
