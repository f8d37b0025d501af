"""The state from tile to tile. One program a sequence, value head and block of value channels.

An export is one more turn of the same loop, just before the tile that holds its offset: the prepared tile with the
lower row limit, whose state goes to the checkpoint and is then forgotten. So there is one copy of the arithmetic and
one binary for the main path, the truncated call and the export, whatever the offset.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flashstate.kernels.triton.arithmetic import product
from flashstate.kernels.triton.prepare import export_tile, first_slot


@triton.jit
def _load_blocks(at: tl.tensor, BLOCKS: tl.constexpr, KEYS: tl.constexpr) -> tl.tuple:
    """BLOCKS tensors side by side, each KEYS columns wide: short-lived parts of what the registers cannot hold."""
    blocks = tl.tuple(())
    for part in tl.static_range(BLOCKS):
        blocks += (tl.load(at + part * KEYS),)
    return blocks


@triton.jit(do_not_specialize=["tile_slots"])
def scan_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    beta: tl.tensor,
    cu_seqlens: tl.tensor,
    export_offsets: tl.tensor,
    initial_state: tl.tensor,
    scores: tl.tensor,
    solved_k: tl.tensor,
    solved_v: tl.tensor,
    q_read: tl.tensor,
    k_write: tl.tensor,
    row_read: tl.tensor,
    row_write: tl.tensor,
    tile_decay: tl.tensor,
    output: tl.tensor,
    final_state: tl.tensor,
    checkpoint: tl.tensor,
    tile_slots: tl.tensor,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    TOKENS: tl.constexpr,
    KEYS: tl.constexpr,
    VALUES: tl.constexpr,
    CHANNEL_DECAY: tl.constexpr,
    DELTA: tl.constexpr,
) -> None:
    """Inputs and outputs as in ChunkInputs and ChunkOutputs, and what `prepare_kernel` wrote."""
    # One axis alone: the others end at 65,535 programs.
    states = tl.program_id(0) // (VALUE_DIM // VALUES)
    block = tl.program_id(0) % (VALUE_DIM // VALUES)
    sequence = states // HEADS
    head = states % HEADS
    begin = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - begin
    offset = tl.load(export_offsets + sequence)
    exported = export_tile(offset, length, TOKENS)
    slots = first_slot(cu_seqlens, sequence, TOKENS)

    KIND: tl.constexpr = k.dtype.element_ty
    BLOCKS: tl.constexpr = KEY_DIM // KEYS
    tokens = tl.arange(0, TOKENS)
    keys = tl.arange(0, KEYS)[None, :]
    values = block * VALUES + tl.arange(0, VALUES)
    row = tokens[:, None]
    at_state = (states.to(tl.int64) * VALUE_DIM + values[:, None]) * KEY_DIM + keys
    state = _load_blocks(initial_state + at_state, BLOCKS, KEYS)

    turns = (length + TOKENS - 1) // TOKENS + tl.where(exported >= 0, 1, 0)
    for turn in range(turns):
        exports = turn == exported
        tile = turn - tl.where((exported >= 0) & (turn > exported), 1, 0)
        limit = tl.minimum(tl.where(exports, offset, length) - tile * TOKENS, TOKENS)
        slot = tl.where(exports, tile_slots + sequence, slots + tile).to(tl.int64) * HEADS + head
        token = begin.to(tl.int64) + tile * TOKENS + tokens
        valid = tokens < limit
        at_values = (token[:, None] * HEADS + head) * VALUE_DIM + values[None, :]
        at_rows = (slot * TOKENS + row) * KEY_DIM + keys
        at_keys = (token[:, None] * KEY_HEADS + head // (HEADS // KEY_HEADS)) * KEY_DIM + keys

        read = tl.zeros((TOKENS, VALUES), tl.float32)
        known = tl.zeros((TOKENS, VALUES), tl.float32)
        for part in tl.static_range(BLOCKS):
            before = tl.trans(state[part]).to(KIND)
            if DELTA:
                known = product(tl.load(solved_k + at_rows + part * KEYS), before, known)
            if CHANNEL_DECAY:
                q_tile = tl.load(q_read + at_rows + part * KEYS)
            else:
                q_tile = tl.load(q + at_keys + part * KEYS, mask=valid[:, None], other=0.0)
            read = product(q_tile, before, read)
        if DELTA:
            wanted = tl.load(solved_v + (slot * TOKENS + row) * VALUE_DIM + values[None, :]).to(tl.float32)
            written = wanted - known
        else:
            v_tile = tl.load(v + at_values, mask=valid[:, None], other=0.0).to(tl.float32)
            written = v_tile * tl.load(beta + token * HEADS + head, mask=valid, other=0.0)[:, None]
        kept = written
        if not CHANNEL_DECAY:
            read *= tl.load(row_read + slot * TOKENS + tokens)[:, None]
            kept = written * tl.load(row_write + slot * TOKENS + tokens)[:, None]
        score = tl.load(scores + (slot * TOKENS + row) * TOKENS + tokens[None, :])
        read = product(score, written.to(KIND), read)
        # Rows before the offset come from the exporting turn, so that nothing after it can reach them.
        done = tl.where((exported >= 0) & (turn == exported + 1), offset - tile * TOKENS, 0)
        tl.store(output + at_values, read.to(KIND), mask=((tokens >= done) & valid)[:, None])

        written_by = tl.trans(kept.to(KIND))
        after = tl.tuple(())
        for part in tl.static_range(BLOCKS):
            if CHANNEL_DECAY:
                k_tile = tl.load(k_write + at_rows + part * KEYS)
                decay = tl.load(tile_decay + slot * KEY_DIM + part * KEYS + keys)
            else:
                k_tile = tl.load(k + at_keys + part * KEYS, mask=valid[:, None], other=0.0)
                decay = tl.load(tile_decay + slot)
            new = product(written_by, k_tile, state[part] * decay)
            if exports:
                tl.store(checkpoint + at_state + part * KEYS, new)
            after += (tl.where(exports, state[part], new),)
        state = after
    for part in tl.static_range(BLOCKS):
        tl.store(final_state + at_state + part * KEYS, state[part])
