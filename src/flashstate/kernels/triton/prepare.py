"""All that a tile needs and no state decides: decays, scores, and the delta rule solved within the tile.

One program a slot and value head. Slots of the tiles come first, then one slot a sequence for the tile that ends
at its export offset: the same work on the same tile with a lower row limit.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flashstate.kernels.triton.arithmetic import joins, product, unit_triangular_inverse


@triton.jit
def first_slot(cu_seqlens: tl.tensor, sequence: tl.tensor, TOKENS: tl.constexpr) -> tl.tensor:
    """Where a sequence's slots begin. Room for each of its tiles, from cu_seqlens alone: no sum, no host wait."""
    return tl.load(cu_seqlens + sequence) // TOKENS + sequence


@triton.jit
def export_tile(offset: tl.tensor, length: tl.tensor, TOKENS: tl.constexpr) -> tl.tensor:
    """The tile in which an export offset ends, or -1 where there is none within the sequence."""
    return tl.where((offset > 0) & (offset <= length), (offset - 1) // TOKENS, -1)


@triton.jit
def _sequence_of(
    cu_seqlens: tl.tensor, slot: tl.tensor, sequences: tl.tensor, TOKENS: tl.constexpr
) -> tl.tensor:
    """The last sequence whose first slot is not after `slot`, by bisection."""
    low = slot * 0
    high = low + sequences
    while high - low > 1:
        middle = (low + high) // 2
        before = first_slot(cu_seqlens, middle, TOKENS) <= slot
        low = tl.where(before, middle, low)
        high = tl.where(before, high, middle)
    return low


@triton.jit
def _place(
    cu_seqlens: tl.tensor,
    export_offsets: tl.tensor,
    slot: tl.tensor,
    sequences: tl.tensor,
    tile_slots: tl.tensor,
    TOKENS: tl.constexpr,
) -> tl.tensor:
    """The first token of a slot's tile, in the batch, and the number of its rows; none where the slot is spare."""
    exports = slot >= tile_slots
    sequence = _sequence_of(cu_seqlens, tl.where(exports, 0, slot), sequences, TOKENS)
    sequence = tl.where(exports, slot - tile_slots, sequence)
    begin = tl.load(cu_seqlens + sequence)
    length = tl.load(cu_seqlens + sequence + 1) - begin
    offset = tl.load(export_offsets + sequence)
    tile = tl.where(
        exports, export_tile(offset, length, TOKENS), slot - first_slot(cu_seqlens, sequence, TOKENS)
    )
    end = tl.where(exports, tl.where(tile >= 0, offset, 0), length)
    first = tl.maximum(tile, 0) * TOKENS
    return begin + first, tl.minimum(end - first, TOKENS)


@triton.jit
def _row(tile: tl.tensor, row: tl.tensor, index: tl.tensor) -> tl.tensor:
    """Row `index` of a [tokens, ...] tile: a sum of it and zeros, which is exact."""
    return tl.sum(tl.where(row == index, tile, 0.0), axis=0)


@triton.jit
def _channel_scores(
    q_scores: tl.tensor,
    k_scores: tl.tensor,
    q: tl.tensor,
    k: tl.tensor,
    log_decay: tl.tensor,
    row: tl.tensor,
    col: tl.tensor,
    KIND: tl.constexpr,
    TOKENS: tl.constexpr,
    KEYS: tl.constexpr,
    LEVELS: tl.constexpr,
) -> tl.tensor:
    """The scores, with those of some more channels on top of them.

    sum_c x[i,c] k[j,c] exp(decay of channel c from j to i), for x = q (i >= j) and x = k (i > j).
    exp(G_i) exp(-G_j) overflows where a tile forgets much. Split at a row between j and i, both factors are at most
    1; each level serves the pairs that it joins, splitting at the end of the earlier block.
    """
    q_scores += tl.where(row == col, tl.sum(q * k, axis=1)[:, None], 0.0)
    for level in tl.static_range(LEVELS):
        blocks = tl.reshape(log_decay, (TOKENS // 2**level, 2**level, KEYS))
        since = tl.cumsum(blocks, axis=1)
        until = tl.sum(blocks, axis=1, keep_dims=True) - since
        since = tl.exp(tl.reshape(since, (TOKENS, KEYS)))
        until = tl.exp(tl.reshape(until, (TOKENS, KEYS)))
        early = tl.trans((k * until).to(KIND))
        join = joins(row, col, level)
        q_scores += tl.where(join, product((q * since).to(KIND), early), 0.0)
        k_scores += tl.where(join, product((k * since).to(KIND), early), 0.0)
    return q_scores, k_scores


@triton.jit(do_not_specialize=["sequences", "tile_slots"])
def prepare_kernel(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    log_decay: tl.tensor,
    beta: tl.tensor,
    cu_seqlens: tl.tensor,
    export_offsets: tl.tensor,
    scores: tl.tensor,
    solved_k: tl.tensor,
    solved_v: tl.tensor,
    q_read: tl.tensor,
    k_write: tl.tensor,
    row_read: tl.tensor,
    row_write: tl.tensor,
    tile_decay: tl.tensor,
    scale: tl.tensor,
    sequences: tl.tensor,
    tile_slots: tl.tensor,
    HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    KEYS: tl.constexpr,
    TOKENS: tl.constexpr,
    LEVELS: tl.constexpr,
    CHANNEL_DECAY: tl.constexpr,
    DELTA: tl.constexpr,
) -> None:
    """Inputs as in ChunkInputs. Outputs, each [slots, H, ...]:

    scores [tokens, tokens]: q's, within the tile. solved_k [tokens, K], solved_v [tokens, V]: delta rule only; the
    rows to write are solved_v - solved_k S^T. tile_decay: of the whole tile, [K] by channel, else [1].
    By channel: q_read, k_write [tokens, K], q and k with the decay to the tile's start and end. Else row_read and
    row_write [tokens] float32, the same decays (row_read with the scale) for q's and k's rows.
    """
    slot = tl.program_id(0)
    head = tl.program_id(1)
    first, limit = _place(cu_seqlens, export_offsets, slot, sequences, tile_slots, TOKENS)
    if limit <= 0:
        return
    KIND: tl.constexpr = k.dtype.element_ty
    tokens = tl.arange(0, TOKENS)
    keys = tl.arange(0, KEYS)
    row = tokens[:, None]
    col = tokens[None, :]
    valid = tokens < limit
    token = first.to(tl.int64) + tokens
    out = slot.to(tl.int64) * HEADS + head
    out_keys = (out * TOKENS + row) * KEY_DIM + keys[None, :]
    at_keys = (token[:, None] * KEY_HEADS + head // (HEADS // KEY_HEADS)) * KEY_DIM + keys[None, :]
    at_decay = (token[:, None] * HEADS + head) * KEY_DIM + keys[None, :]

    q_scores = tl.zeros((TOKENS, TOKENS), tl.float32)
    k_scores = tl.zeros((TOKENS, TOKENS), tl.float32)
    # The decay of a tile ends at its last valid row: the rows after it sum zeros in another order.
    if CHANNEL_DECAY:
        for part in range(0, KEY_DIM, KEYS):
            q_wide = tl.load(q + at_keys + part, mask=valid[:, None], other=0.0).to(tl.float32) * scale
            k_wide = tl.load(k + at_keys + part, mask=valid[:, None], other=0.0).to(tl.float32)
            gates = tl.load(log_decay + at_decay + part, mask=valid[:, None], other=0.0)
            since = tl.cumsum(gates, axis=0)
            whole = _row(since, row, limit - 1)
            tl.store(q_read + out_keys + part, (q_wide * tl.exp(since)).to(KIND))
            tl.store(k_write + out_keys + part, (k_wide * tl.exp(whole[None, :] - since)).to(KIND))
            tl.store(tile_decay + out * KEY_DIM + part + keys, tl.exp(whole))
            q_scores, k_scores = _channel_scores(
                q_scores, k_scores, q_wide, k_wide, gates, row, col, KIND, TOKENS, KEYS, LEVELS
            )
    else:
        gates = tl.load(log_decay + token * HEADS + head, mask=valid, other=0.0)
        # Float64 until differences are taken: float32 would lose what long sums have gained.
        sums = tl.cumsum(gates.to(tl.float64), axis=0)
        whole = _row(sums, tokens, limit - 1)
        tl.store(row_read + out * TOKENS + tokens, tl.exp(sums.to(tl.float32)) * scale)
        tl.store(row_write + out * TOKENS + tokens, tl.exp((whole - sums).to(tl.float32)))
        tl.store(tile_decay + out, tl.exp(whole.to(tl.float32)))
        for part in range(0, KEY_DIM, KEYS):
            q_tile = tl.load(q + at_keys + part, mask=valid[:, None], other=0.0)
            k_tile = tl.load(k + at_keys + part, mask=valid[:, None], other=0.0)
            q_scores = product(q_tile, tl.trans(k_tile), q_scores)
            if DELTA:
                k_scores = product(k_tile, tl.trans(k_tile), k_scores)
        between = tl.exp(tl.where(row >= col, sums[:, None] - sums[None, :], 0.0).to(tl.float32))
        q_scores *= between * scale
        k_scores *= between
    tl.store(scores + (out * TOKENS + row) * TOKENS + col, tl.where(row >= col, q_scores, 0.0).to(KIND))

    if DELTA:
        strength = tl.load(beta + token * HEADS + head, mask=valid, other=0.0)
        lower = tl.where(row > col, k_scores * strength[:, None], 0.0)
        inverse = unit_triangular_inverse(lower, row, col, LEVELS)
        solve = (inverse * strength[None, :]).to(KIND)
        # Keys and decays once more: kept from above, they would take the registers that the inverse needs.
        for part in range(0, KEY_DIM, KEYS):
            k_wide = tl.load(k + at_keys + part, mask=valid[:, None], other=0.0).to(tl.float32)
            if CHANNEL_DECAY:
                gates = tl.load(log_decay + at_decay + part, mask=valid[:, None], other=0.0)
                since = tl.cumsum(gates, axis=0)
            else:
                since = sums.to(tl.float32)[:, None]
            tl.store(solved_k + out_keys + part, product(solve, (k_wide * tl.exp(since)).to(KIND)).to(KIND))
        WIDTH: tl.constexpr = KEYS if KEYS < VALUE_DIM else VALUE_DIM
        values = tl.arange(0, WIDTH)[None, :]
        at_values = (token[:, None] * HEADS + head) * VALUE_DIM + values
        out_values = (out * TOKENS + row) * VALUE_DIM + values
        for part in range(0, VALUE_DIM, WIDTH):
            v_tile = tl.load(v + at_values + part, mask=valid[:, None], other=0.0)
            tl.store(solved_v + out_values + part, product(solve, v_tile).to(KIND))
