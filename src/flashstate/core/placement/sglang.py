"""SGLang's placement: one state a prefill chunk, on its track grid."""

from __future__ import annotations

from collections.abc import Iterator

from flashstate.core.placement.base import Placement, Prompt, Spot
from flashstate.core.state import CHUNK_END, JUNCTION


class SGLang(Placement):
    """In each chunk of 8,192 tokens the last multiple of 256, or where KV goes on without a state, if that is in it.

    SGLang (schedule_batch.py, `_mamba_radix_cache_v2_req_prepare_for_extend`) tracks one position of each chunk: the
    last multiple of 64, its kernels' chunk, unless the KV found reached deeper than the state resumed from: then where
    it ended (`mamba_branching_seqlen`). While decoding it tracks each multiple of 256 (--mamba-track-interval) and
    keeps the last. We take 256 for both, so that a request's end is the last multiple before it (see `TwoPoolCache`).
    The chunk is its default for GPUs of 80 GB to 160 GB.
    """

    name = "sglang"
    track_tokens = 256
    chunk_tokens = 8192

    def candidates(self, prompt: Prompt) -> Iterator[Spot]:
        branch = min(prompt.resident, prompt.tokens - 1) // self.track_tokens * self.track_tokens
        for start in range(prompt.resumed, prompt.tokens, self.chunk_tokens):
            stop = min(start + self.chunk_tokens, prompt.tokens)
            if max(start, prompt.resumed) < branch <= stop:
                yield Spot(branch, JUNCTION)
            else:
                yield Spot(stop // self.track_tokens * self.track_tokens, CHUNK_END)
