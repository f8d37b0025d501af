"""The worker's side of in-chunk export on CPU: vLLM's own kernels, called in pieces so that a state comes out between.

What to export the scheduler has ordered (`step_exports`). Mutates only the blocks that it names: outputs and final
states keep their bits (see `kernels.split`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from vllm.forward_context import get_forward_context

from flashstate.kernels.convolution import convolution_state_at
from flashstate.kernels.split import export_by_split
from flashstate.plugin.step_exports import ATTRIBUTE, Exports, OrderedExports, Row, rows_of, step_exports

GDN_GRID: Final = 64
"""Tokens: the tile of vLLM's CPU kernel for the gated delta rule."""
MARK: Final = "_flashstate"
"""Attribute of a replaced function of vLLM's: the stock one."""


@dataclass(slots=True)
class _Step:
    """What the step that runs exports. `scan`: rows of the Mamba-2 layer that runs, and the states it has given."""

    exports: OrderedExports = field(default_factory=lambda: OrderedExports({}))
    scan: list[Row] = field(default_factory=list)
    scanned: list[tuple[int, torch.Tensor]] = field(default_factory=list)


def export_convolution(rows: list[Row], x: torch.Tensor, pool: torch.Tensor) -> None:
    """Write the convolution's state at each row's offset, before the convolution overwrites the live ones.

    x: [C, T], inputs before the convolution. pool: [blocks, C, K - 1]. Mutates `pool` at the destinations.
    """
    kept = pool.shape[-1]
    for row in rows:
        if row.offset >= kept:
            at = row.begin + row.offset
            pool[row.destination].copy_(x.narrow(1, at - kept, kept))
        elif row.offset:
            live = pool[row.slot].transpose(0, 1)
            initial = live if row.has_state else torch.zeros_like(live)
            inputs = x[:, row.begin : row.end].transpose(0, 1).to(pool.dtype)
            pool[row.destination] = convolution_state_at(initial, inputs, row.offset).transpose(0, 1)


def install() -> None:
    """Wrap vLLM's CPU kernels and its worker. Idempotent."""
    from vllm.platforms.interface import Platform
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    if hasattr(WorkerWrapperBase.execute_model, MARK):
        return
    step = _Step()

    @contextmanager
    def exporting(exports: Exports) -> Iterator[None]:
        ordered = OrderedExports(exports)
        step.exports = ordered
        try:
            yield
            ordered.check()
        finally:
            step.exports = OrderedExports({})

    wrap_worker(WorkerWrapperBase, exporting)
    _wrap_forward_context(Platform, step)
    _wrap_convolutions()
    _wrap_gated_delta_rule()
    _wrap_mamba2(step)


def replace(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Put `make(stock function)` in the place of `owner`'s function."""
    stock = getattr(owner, name)
    wrapped = functools.wraps(stock)(make(stock))
    setattr(wrapped, MARK, stock)
    setattr(owner, name, wrapped)


def wrap_worker(worker: Any, exporting: Callable[[Exports], AbstractContextManager[None]]) -> None:
    """Run each step inside `exporting(what the scheduler ordered from it)`."""

    def make(stock: Callable[..., Any]) -> Callable[..., Any]:
        def execute_model(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            with exporting(getattr(scheduler_output, ATTRIBUTE, {})):
                return stock(self, scheduler_output, *args, **kwargs)

        return execute_model

    replace(worker, "execute_model", make)


def _wrap_forward_context(platform: Any, step: _Step) -> None:
    stock = platform.set_additional_forward_context.__func__

    @functools.wraps(stock)
    def set_additional_forward_context(cls: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**stock(cls, *args, **kwargs), ATTRIBUTE: step.exports}

    setattr(set_additional_forward_context, MARK, stock)
    platform.set_additional_forward_context = classmethod(set_additional_forward_context)


def _wrap_convolutions() -> None:
    """The two causal convolutions, under every name that layers call them by."""
    from vllm.model_executor.layers.mamba import mamba_mixer2
    from vllm.model_executor.layers.mamba.ops.cpu import causal_conv1d, gdn_attention

    def make(stock: Callable[..., Any]) -> Callable[..., Any]:
        def convolve(
            x: torch.Tensor,
            weight: torch.Tensor,
            bias: torch.Tensor | None,
            conv_states: torch.Tensor,
            query_start_loc: torch.Tensor,
            cache_indices: torch.Tensor | None = None,
            has_initial_state: torch.Tensor | None = None,
            **kwargs: Any,
        ) -> Any:
            if cache_indices is not None:
                rows = rows_of(query_start_loc, cache_indices, has_initial_state)
                if rows is not None:
                    export_convolution(rows, x, conv_states)
            return stock(
                x=x,
                weight=weight,
                bias=bias,
                conv_states=conv_states,
                query_start_loc=query_start_loc,
                cache_indices=cache_indices,
                has_initial_state=has_initial_state,
                **kwargs,
            )

        return convolve

    replace(gdn_attention, "_causal_conv1d_fwd_cpu", make)
    plain = causal_conv1d.causal_conv1d_fn_cpu
    replace(causal_conv1d, "causal_conv1d_fn_cpu", make)
    # These two hold the function under names of their own.
    for module, name in ((mamba_mixer2, "causal_conv1d_fn"), (gdn_attention, "causal_conv1d_torch")):
        if getattr(module, name) is plain:
            setattr(module, name, causal_conv1d.causal_conv1d_fn_cpu)


def _wrap_gated_delta_rule() -> None:
    from vllm import _custom_ops

    def make(stock: Callable[..., Any]) -> Callable[..., Any]:
        def chunk_gated_delta_rule_cpu(
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            g: torch.Tensor,
            beta: torch.Tensor,
            initial_state: torch.Tensor,
            output_final_state: bool,
            cu_seqlens: torch.Tensor,
            head_first: bool,
            use_qk_l2norm_in_kernel: bool,
            initial_state_indices: torch.Tensor,
            **kwargs: Any,
        ) -> Any:
            tokens = [query, key, value, g, beta]
            rest = (head_first, use_qk_l2norm_in_kernel)
            rows = rows_of(cu_seqlens, initial_state_indices)
            if rows is None:
                return stock(
                    *tokens,
                    initial_state,
                    output_final_state,
                    cu_seqlens,
                    *rest,
                    initial_state_indices,
                    **kwargs,
                )
            assert not head_first, "vLLM's CPU layer hands tokens before heads"

            total, numbers = query.shape[1], _numbers(initial_state.shape[0])

            def run(start: int, end: int, slot: int) -> Outputs:
                if 4 * (end - start) > 3 * total:
                    # The kernel computes what its bounds name, and leaves outputs in their places: no views, and less
                    # to copy. But it normalises the keys and queries of all, so only where these are most.
                    part, bounds = tokens, _bounds(start, end)
                else:
                    part = [tensor.narrow(1, start, end - start) for tensor in tokens]
                    bounds = _bounds(0, end - start)
                index = numbers.narrow(0, slot, 1)
                output, _ = stock(*part, initial_state, output_final_state, bounds, *rest, index, **kwargs)
                return start, end, output

            pieces = [piece for row in rows for piece in _in_place(run, row, initial_state, GDN_GRID)]
            return joined(pieces, total), None

        return chunk_gated_delta_rule_cpu

    replace(_custom_ops, "chunk_gated_delta_rule_cpu", make)


@functools.lru_cache(maxsize=256)
def _bounds(start: int, end: int) -> torch.Tensor:
    """[2] int32, never to be written to: a step's layers ask for the same few."""
    return torch.tensor((start, end), dtype=torch.int32)


@functools.lru_cache(maxsize=8)
def _numbers(count: int) -> torch.Tensor:
    """[count] int32, 0 and up, never to be written to: an index is a view of it."""
    return torch.arange(count, dtype=torch.int32)


Outputs = tuple[int, int, torch.Tensor]
"""First token, the one after the last, and outputs: of those alone, or room for all with only those computed."""


def joined(pieces: list[Outputs], total: int) -> torch.Tensor:
    """[1, total, ...]: the pieces' outputs, each in its place. Mutates the piece that has room for all, if one has."""
    outputs = [output for _, _, output in pieces]
    whole = next((output for output in outputs if output.shape[1] == total), None)
    if whole is None:
        whole = outputs[0].new_empty((1, total, *outputs[0].shape[2:]))
    for start, end, output in pieces:
        if output is not whole:
            whole.narrow(1, start, end - start).copy_(output)
    return whole


def _in_place(
    run: Callable[[int, int, int], Outputs], row: Row, pool: torch.Tensor, grid: int
) -> list[Outputs]:
    """One sequence through a kernel that updates states in their pool; its outputs in order."""
    if not row.offset:
        return [run(row.begin, row.end, row.slot)]

    def copy(source: int, destination: int) -> None:
        pool[destination].copy_(pool[source])

    def shifted(start: int, end: int, slot: int) -> Outputs:
        return run(row.begin + start, row.begin + end, slot)

    return export_by_split(shifted, row.offset, row.end - row.begin, grid, row.slot, row.destination, copy)


def _wrap_mamba2(step: _Step) -> None:
    """The scan has no pool to export into: the layer around it puts the states it gave where they belong."""
    from vllm import _custom_ops
    from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2

    def make_layer(stock: Callable[..., Any]) -> Callable[..., Any]:
        def conv_ssm_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            exports = step_exports()
            if exports:
                metadata = get_forward_context().attn_metadata[self.prefix]
                if metadata.num_prefills:
                    starts, slots = metadata.query_start_loc_p, metadata.state_indices_tensor_p
                    step.scan = exports.rows(starts, slots) or []
            try:
                result = stock(self, *args, **kwargs)
                for destination, state in step.scanned:
                    self.kv_cache[1][destination] = state.to(self.kv_cache[1].dtype)
            finally:
                step.scan, step.scanned = [], []
            return result

        return conv_ssm_forward

    def make_scan(stock: Callable[..., Any]) -> Callable[..., Any]:
        def mamba_chunk_scan_fwd_cpu(
            out: torch.Tensor,
            final_states: torch.Tensor,
            x: torch.Tensor,
            dt: torch.Tensor,
            A: torch.Tensor,  # noqa: N803
            B: torch.Tensor,  # noqa: N803
            C: torch.Tensor,  # noqa: N803
            D: torch.Tensor | None,  # noqa: N803
            z: torch.Tensor | None,
            cu_seqlens: torch.Tensor,
        ) -> None:
            if not step.scan:
                stock(out, final_states, x, dt, A, B, C, D, z, cu_seqlens)
                return
            for index, row in enumerate(step.scan):

                def run(start: int, end: int, slot: int, at: int = row.begin) -> None:
                    part = slice(at + start, at + end)
                    bounds = torch.tensor([0, end - start], dtype=cu_seqlens.dtype)
                    gate = None if z is None else z[part]
                    states = final_states[slot : slot + 1]
                    stock(out[part], states, x[part], dt[part], A, B[part], C[part], D, gate, bounds)

                tokens = row.end - row.begin
                if not row.offset:
                    run(0, tokens, index)
                    continue
                # A scan token by token: two calls are one.
                run(0, row.offset, index)
                step.scanned.append((row.destination, final_states[index].clone()))
                run(row.offset, tokens, index)

        return mamba_chunk_scan_fwd_cpu

    replace(MambaMixer2, "conv_ssm_forward", make_layer)
    replace(_custom_ops, "mamba_chunk_scan_fwd_cpu", make_scan)
