"""The shape of the work: how many tokens a tile holds, how the value channels are split, how many warps work on it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flashstate.kernels.base import Recurrence


@dataclass(frozen=True)
class ChunkTiles:
    """tokens: of a tile, the grid on which a warm call is bit-equal. values: channels of one scan program.
    keys: channels that a kernel holds as an operand at a time; a key dim below it is taken whole.
    prepare_warps, scan_warps: of 32 threads. scan_stages: depth of the scan's load pipeline, in tiles.
    Raises ValueError for a size that no kernel has.
    """

    tokens: int
    values: int = 32
    keys: int = 128
    prepare_warps: int = 4
    scan_warps: int = 4
    scan_stages: int = 2

    def __post_init__(self) -> None:
        for name in ("tokens", "values", "keys"):
            size = getattr(self, name)
            if size not in (16, 32, 64, 128):
                raise ValueError(f"tile of {size} {name}: must be 16, 32, 64 or 128")


def default_tiles(recurrence: Recurrence, kind: torch.dtype = torch.bfloat16) -> ChunkTiles:
    """Those that `build` shows to fit the registers of sm_90 and sm_100, for key dims up to 128.

    kind: of q, k and v. The grid, `tokens`, does not depend on it. They are not tuned on a GPU.
    """
    # A gate for each key channel takes [tokens, K] registers several times over, so KDA's tiles are small.
    tokens = 16 if recurrence is Recurrence.KDA else 64
    if kind != torch.float32:
        return ChunkTiles(tokens=tokens)
    # Three tf32 products take two registers a number, and a pipeline twice the shared memory of bfloat16.
    return ChunkTiles(tokens=tokens, values=16, keys=32, scan_stages=1)
