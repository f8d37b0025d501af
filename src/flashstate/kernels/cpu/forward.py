"""The C++ recurrence on torch tensors: a whole batch, or in place on an engine's pool of states."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import torch

from flashstate.kernels.base import ChunkInputs, ChunkOutputs, Recurrence, check_inputs
from flashstate.kernels.cpu.library import Call, ChunkForward, native_chunk_forward, parallel_region

KEY_STEP = VALUE_STEP = 16
MAX_KEY_DIM = 256
_FAMILIES = {Recurrence.KDA: 0, Recurrence.GDN: 1, Recurrence.MAMBA2: 2}
_BAD_BOUNDS, _BAD_OFFSET, _BAD_SLOT, _BAD_EXPORT_SLOT, _SHARED_SLOT = range(1, 6)


def chunk_forward(inputs: ChunkInputs, function: ChunkForward | None = None) -> ChunkOutputs:
    """The contract of `flashstate.kernels.base` on CPU tensors, for all three recurrences.

    q, k, v: float32 or bfloat16; K a multiple of 16 up to 256, V a multiple of 16. Runs on torch.get_num_threads()
    threads; their number does not show in the bits. Exact at every offset: there is no tile grid.
    function: another build of the kernel (`library.load`); this processor's if None.
    Raises ValueError for inputs it cannot take, CompileError where the kernel cannot be built.
    """
    check_inputs(inputs)
    sequences = inputs.cu_seqlens.numel() - 1
    _, heads, value_dim = inputs.v.shape
    shape = (sequences, heads, value_dim, inputs.k.shape[2])
    exports = inputs.export_offsets is not None
    pool = inputs.v.new_empty((sequences * (1 + exports), *shape[1:]), dtype=torch.float32)
    states = pool[:sequences]
    if inputs.initial_state is None:
        states.zero_()
    else:
        states.copy_(inputs.initial_state)
    rows = torch.arange(len(pool), dtype=torch.int32)
    output = chunk_forward_in_pool(
        replace(inputs, initial_state=None),
        pool,
        rows[:sequences],
        export_slots=rows[sequences:] if exports else None,
        function=function,
    )
    return ChunkOutputs(output, states, pool[sequences:] if exports else None)


def chunk_forward_in_pool(
    inputs: ChunkInputs,
    pool: torch.Tensor,
    slots: torch.Tensor,
    has_initial: torch.Tensor | None = None,
    export_slots: torch.Tensor | None = None,
    function: ChunkForward | None = None,
) -> torch.Tensor:
    """The same, in place: reads sequence n's state from pool[slots[n]] and leaves its final state there.

    inputs.initial_state must be None. A sequence of one token is a decode step; one of no tokens is left alone,
    slot and all.
    pool: [slots, H, V, K] float32; slots may lie any distance apart, each is contiguous.
    slots: [N] int32. A slot that is written, as a state or as an export, is named once in a call.
    has_initial: [N] bool; where False the sequence starts from zeros and its slot is not read. None: all True.
    export_slots: [N] int32, given exactly if inputs.export_offsets is: where that offset c is above 0, the state after
    c tokens goes to pool[export_slots[n]]; elsewhere the entry is not read.
    Returns the output, [T, H, V], the type of v. Raises ValueError and CompileError; nothing is written then.
    """
    check_inputs(inputs)
    _check(inputs, pool, slots, has_initial, export_slots)
    function = function or native_chunk_forward()
    output = torch.empty_like(inputs.v)
    tokens, heads, value_dim = inputs.v.shape
    call = Call(
        q=inputs.q.data_ptr(),
        k=inputs.k.data_ptr(),
        v=inputs.v.data_ptr(),
        log_decay=inputs.log_decay.data_ptr(),
        beta=inputs.beta.data_ptr(),
        output=output.data_ptr(),
        pool=pool.data_ptr(),
        cu_seqlens=inputs.cu_seqlens.data_ptr(),
        slots=slots.data_ptr(),
        has_initial=None if has_initial is None else has_initial.data_ptr(),
        export_offsets=None if inputs.export_offsets is None else inputs.export_offsets.data_ptr(),
        export_slots=None if export_slots is None else export_slots.data_ptr(),
        parallel=parallel_region(),
        slot_stride=pool.stride(0),
        pool_slots=pool.shape[0],
        tokens=tokens,
        sequences=slots.numel(),
        heads=heads,
        key_heads=inputs.k.shape[1],
        values=value_dim,
        keys=inputs.k.shape[2],
        family=_FAMILIES[inputs.recurrence],
        bfloat16=inputs.v.dtype == torch.bfloat16,
        threads=torch.get_num_threads(),
        scale=inputs.scale,
    )
    fault = function(ctypes.byref(call))
    if fault:
        raise ValueError(_explain(fault, call.fault_sequence, inputs, pool, slots, export_slots))
    return output


def _check(
    inputs: ChunkInputs,
    pool: torch.Tensor,
    slots: torch.Tensor,
    has_initial: torch.Tensor | None,
    export_slots: torch.Tensor | None,
) -> None:
    """What the C++ cannot see: types, shapes, strides, devices."""
    _, heads, value_dim = inputs.v.shape
    key_dim = inputs.k.shape[2]
    sequences = inputs.cu_seqlens.numel() - 1
    if inputs.v.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"v is {inputs.v.dtype}: must be torch.float32 or torch.bfloat16")
    if key_dim % KEY_STEP or not 0 < key_dim <= MAX_KEY_DIM:
        raise ValueError(
            f"k has head dimension {key_dim}: must be a multiple of {KEY_STEP} up to {MAX_KEY_DIM}"
        )
    if value_dim % VALUE_STEP or not value_dim:
        raise ValueError(f"v has head dimension {value_dim}: must be a multiple of {VALUE_STEP}")
    if inputs.initial_state is not None:
        raise ValueError("initial_state is given: must be None, the pool holds the initial states")
    if (inputs.export_offsets is None) != (export_slots is None):
        raise ValueError("export_offsets or export_slots is missing: give both or neither")
    if pool.dtype != torch.float32 or pool.dim() != 4 or tuple(pool.shape[1:]) != (heads, value_dim, key_dim):
        shape = ("slots", heads, value_dim, key_dim)
        raise ValueError(f"pool is {pool.dtype} {tuple(pool.shape)}: must be torch.float32 {shape}")
    if pool.stride()[1:] != (value_dim * key_dim, key_dim, 1):
        raise ValueError(f"pool has strides {pool.stride()}: each slot must be contiguous")
    for name, tensor, dtype in (
        ("slots", slots, torch.int32),
        ("has_initial", has_initial, torch.bool),
        ("export_slots", export_slots, torch.int32),
    ):
        if tensor is None:
            continue
        if tensor.dtype != dtype or tuple(tensor.shape) != (sequences,) or not tensor.is_contiguous():
            raise ValueError(
                f"{name} is {tensor.dtype} {tuple(tensor.shape)}: must be {dtype} {(sequences,)}, contiguous"
            )
    given = (*vars(inputs).values(), pool, slots, has_initial, export_slots)
    for tensor in given:
        if isinstance(tensor, torch.Tensor) and not tensor.is_cpu:
            raise ValueError(f"a tensor is on {tensor.device}: all must be on the cpu")


def _explain(
    fault: int,
    sequence: int,
    inputs: ChunkInputs,
    pool: torch.Tensor,
    slots: torch.Tensor,
    export_slots: torch.Tensor | None,
) -> str:
    """One line for a fault that the C++ found in the values."""
    if fault == _BAD_BOUNDS:
        return f"cu_seqlens is {inputs.cu_seqlens.tolist()}: must rise from 0 to the {len(inputs.v)} tokens"
    if fault == _SHARED_SLOT:
        return f"slot {sequence} is written twice in one call: every state and export needs its own"
    if fault == _BAD_OFFSET and inputs.export_offsets is not None:
        length = int(inputs.cu_seqlens[sequence + 1] - inputs.cu_seqlens[sequence])
        offset = int(inputs.export_offsets[sequence])
        return f"export offset {offset} of sequence {sequence}: must be 0 to its {length} tokens"
    named = export_slots if fault == _BAD_EXPORT_SLOT and export_slots is not None else slots
    return f"slot {int(named[sequence])} of sequence {sequence}: the pool has slots 0 to {len(pool) - 1}"
