"""What both kernels share: a product that is the same everywhere, and the inverse of a triangular tile.

Every result row i here depends on operand rows up to i alone, and operands past a tile's limit are zeros, never a
smaller tile: a truncated tile then has the bits of the whole one in the rows they share.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

# Triton decides this once, when a kernel is defined; so do we.
INTERPRETED: bool = bool(knobs.runtime.interpret)
_UPCAST = tl.constexpr(INTERPRETED)


@triton.jit
def product(a: tl.tensor, b: tl.tensor, sums: tl.tensor | None = None) -> tl.tensor:
    """sums + a @ b, in float32. Products of bf16 are exact; of float32, three tf32 products keep about 21 bits."""
    if _UPCAST:
        # The interpreter would multiply the raw bits of bf16 operands as integers.
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, sums, input_precision="tf32x3")


@triton.jit
def joins(row: tl.tensor, col: tl.tensor, level: tl.tensor) -> tl.tensor:
    """Whether (row, col) joins a block of 2^level rows to the one before it, both halves of one block twice the size.

    Over level = 0, 1, 2, ... each pair row > col is in exactly one such join.
    """
    return (row >> (level + 1) == col >> (level + 1)) & (row >> level > col >> level)


@triton.jit
def unit_triangular_inverse(
    lower: tl.tensor, row: tl.tensor, col: tl.tensor, LEVELS: tl.constexpr
) -> tl.tensor:
    """(I + lower)^-1 for a strictly lower triangular [2^LEVELS, 2^LEVELS] float32 tile.

    Doubles inverted diagonal blocks: [[A, 0], [B, C]]^-1 = [[A^-1, 0], [-C^-1 B A^-1, C^-1]]. All that is ever
    held are inverses of blocks, so equal keys, where a power series loses four digits, do no harm.
    """
    inverse = tl.where(row == col, 1.0, 0.0) - tl.where(joins(row, col, 0), lower, 0.0)
    # A real loop: unrolled, it is most of the binary and of the time to compile it.
    for level in range(1, LEVELS):
        join = tl.where(joins(row, col, level), lower, 0.0)
        inverse -= product(inverse, product(join, inverse))
    return inverse
