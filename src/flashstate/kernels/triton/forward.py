"""The call: checks, scratch memory and the two launches."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from flashstate.kernels.base import ChunkInputs, ChunkOutputs, Recurrence, check_inputs
from flashstate.kernels.triton.arithmetic import INTERPRETED
from flashstate.kernels.triton.prepare import prepare_kernel
from flashstate.kernels.triton.scan import scan_kernel
from flashstate.kernels.triton.tiles import ChunkTiles, default_tiles

# Contracted multiply-adds are the compiler's choice, place by place: pinned, so that no rebuild changes a bit.
FP_FUSION = False


def chunk_forward(inputs: ChunkInputs, *, tiles: ChunkTiles | None = None) -> ChunkOutputs:
    """Runs one batch under the contract of `flashstate.kernels.base`; never waits for the device.

    q, k and v in float32 or bfloat16; key and value dims powers of two from 16 to 256, V a multiple of tiles.values.
    An export offset beyond its sequence exports nothing. tiles: None for `default_tiles`.
    Raises ValueError for inputs that do not fit, RuntimeError on a CPU outside of Triton's interpreter.
    """
    check_inputs(inputs)
    tiles = tiles or default_tiles(inputs.recurrence, inputs.v.dtype)
    _check_kernel_limits(inputs, tiles)
    inputs = _aligned(inputs)
    with torch.cuda.device_of(inputs.v):
        return _launch(inputs, tiles)


@dataclass(frozen=True, eq=False)
class _Scratch:
    """What `prepare_kernel` writes and `scan_kernel` reads, in the order of their arguments.

    None what a recurrence does not use. See `prepare_kernel` for the shapes.
    """

    scores: torch.Tensor
    solved_k: torch.Tensor | None
    solved_v: torch.Tensor | None
    q_read: torch.Tensor | None
    k_write: torch.Tensor | None
    row_read: torch.Tensor | None
    row_write: torch.Tensor | None
    tile_decay: torch.Tensor


def _launch(inputs: ChunkInputs, tiles: ChunkTiles) -> ChunkOutputs:
    tokens, heads, value_dim = inputs.v.shape
    key_dim = inputs.k.shape[2]
    sequences = inputs.cu_seqlens.numel() - 1
    tile_slots = tokens // tiles.tokens + sequences
    slots = tile_slots + (0 if inputs.export_offsets is None else sequences)
    scratch = _scratch(inputs, slots, tiles.tokens)
    # Zeros instead of an absent argument: a binary of its own could round differently.
    offsets = inputs.export_offsets
    offsets = inputs.cu_seqlens.new_zeros(sequences) if offsets is None else offsets
    initial = inputs.initial_state
    state_shape = (sequences, heads, value_dim, key_dim)
    initial = inputs.beta.new_zeros(state_shape) if initial is None else initial
    final = torch.empty_like(initial)
    checkpoint = None if inputs.export_offsets is None else torch.empty_like(initial)
    output = torch.empty_like(inputs.v)
    common = {
        "HEADS": heads,
        "KEY_HEADS": inputs.k.shape[1],
        "KEY_DIM": key_dim,
        "VALUE_DIM": value_dim,
        **kernel_kind(inputs.recurrence, tiles, key_dim),
        "enable_fp_fusion": FP_FUSION,
    }
    prepare_kernel[(slots, heads)](
        inputs.q, inputs.k, inputs.v, inputs.log_decay, inputs.beta, inputs.cu_seqlens, offsets,
        *vars(scratch).values(), inputs.scale, sequences, tile_slots,
        LEVELS=tiles.tokens.bit_length() - 1,
        num_warps=tiles.prepare_warps,
        **common,
    )  # fmt: skip
    scan_kernel[(sequences * heads * (value_dim // tiles.values),)](
        inputs.q, inputs.k, inputs.v, inputs.beta, inputs.cu_seqlens, offsets, initial,
        *vars(scratch).values(), output, final, final if checkpoint is None else checkpoint, tile_slots,
        VALUES=tiles.values,
        num_warps=tiles.scan_warps,
        num_stages=tiles.scan_stages,
        **common,
    )  # fmt: skip
    return ChunkOutputs(output, final, checkpoint)


def kernel_kind(recurrence: Recurrence, tiles: ChunkTiles, key_dim: int) -> dict[str, object]:
    """The compile-time arguments that both kernels take from the recurrence and its tiles."""
    return {
        "KEYS": min(tiles.keys, key_dim),
        "TOKENS": tiles.tokens,
        "CHANNEL_DECAY": recurrence is Recurrence.KDA,
        "DELTA": recurrence is not Recurrence.MAMBA2,
    }


def _scratch(inputs: ChunkInputs, slots: int, tile: int) -> _Scratch:
    heads, value_dim = inputs.v.shape[1:]
    key_dim = inputs.k.shape[2]
    by_channel = inputs.recurrence is Recurrence.KDA
    delta = inputs.recurrence is not Recurrence.MAMBA2

    def rows(*shape: int) -> torch.Tensor:
        return inputs.v.new_empty((slots, heads, tile, *shape))

    def decays(*shape: int) -> torch.Tensor:
        return inputs.log_decay.new_empty((slots, heads, *shape))

    return _Scratch(
        scores=rows(tile),
        solved_k=rows(key_dim) if delta else None,
        solved_v=rows(value_dim) if delta else None,
        q_read=rows(key_dim) if by_channel else None,
        k_write=rows(key_dim) if by_channel else None,
        row_read=None if by_channel else decays(tile),
        row_write=None if by_channel else decays(tile),
        tile_decay=decays(key_dim) if by_channel else decays(),
    )


def _check_kernel_limits(inputs: ChunkInputs, tiles: ChunkTiles) -> None:
    if inputs.v.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"v is {inputs.v.dtype}: must be torch.float32 or torch.bfloat16")
    for name, dim in (("key_dim", inputs.k.shape[2]), ("value_dim", inputs.v.shape[2])):
        if dim not in (16, 32, 64, 128, 256):
            raise ValueError(f"{name} is {dim}: must be a power of two from 16 to 256")
    if inputs.v.shape[2] % tiles.values:
        raise ValueError(
            f"value_dim is {inputs.v.shape[2]}: must be a multiple of the tiles' {tiles.values} values"
        )
    if not (INTERPRETED or inputs.v.is_cuda):
        raise RuntimeError(
            f"v is on {inputs.v.device}: must be on CUDA, or set TRITON_INTERPRET=1 before Triton is imported"
        )


def _aligned(inputs: ChunkInputs) -> ChunkInputs:
    """The same inputs, each starting at a multiple of 16 bytes.

    Triton compiles another binary for pointers that do not, with other layouts and so, perhaps, other bits.
    """
    moved = {
        name: tensor.clone()
        for name, tensor in vars(inputs).items()
        if isinstance(tensor, torch.Tensor) and tensor.data_ptr() % 16
    }
    return replace(inputs, **moved) if moved else inputs
