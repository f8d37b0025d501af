"""The shape of the work: how many tokens a tile holds, how the value channels are split, how many warps work on it."""

from __future__ import annotations

from dataclasses import dataclass

from flashstate.kernels.base import Recurrence


@dataclass(frozen=True)
class ChunkTiles:
    """tokens: of a tile, the grid on which a warm call is bit-equal. values: channels of one scan program.

    prepare_warps, scan_warps: of 32 threads. scan_stages: depth of the scan's load pipeline, in tiles.
    Raises ValueError for a size that no kernel has.
    """

    tokens: int
    values: int = 32
    prepare_warps: int = 4
    scan_warps: int = 4
    scan_stages: int = 2

    def __post_init__(self) -> None:
        for name in ("tokens", "values"):
            size = getattr(self, name)
            if size not in (16, 32, 64, 128):
                raise ValueError(f"tile of {size} {name}: must be 16, 32, 64 or 128")


def default_tiles(recurrence: Recurrence) -> ChunkTiles:
    """Those that `build` shows to fit sm_90 and sm_100 in bfloat16, for key dims up to 128.

    They are not tuned on a GPU. Float32, for checks, spills registers with them: slower, no less exact.
    """
    # A gate for each key channel takes [tokens, K] registers several times over, so KDA's tiles are small.
    return ChunkTiles(tokens=16 if recurrence is Recurrence.KDA else 64)
