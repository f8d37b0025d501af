"""The kernels in Triton: KDA, GDN and Mamba-2 chunked prefill that exports a state at any token of the call.

`prepare` works on all tiles at once, `scan` from tile to tile; `build` compiles both where there is no GPU.
"""

from flashstate.kernels.triton.forward import chunk_forward
from flashstate.kernels.triton.tiles import ChunkTiles, default_tiles

__all__ = ["ChunkTiles", "chunk_forward", "default_tiles"]
