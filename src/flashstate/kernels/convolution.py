"""The state of a causal convolution: its last K-1 inputs, before the convolution, at any position of a chunk."""

from __future__ import annotations

import torch


def convolution_state_at(initial: torch.Tensor, inputs: torch.Tensor, position: int) -> torch.Tensor:
    """The state after `position` tokens of a chunk, 0 <= position <= T, also where position < K - 1.

    initial: [K - 1, C], the state the chunk starts from (zeros at a sequence's start). inputs: [T, C], raw.
    Returns [K - 1, C], a new tensor. Raises ValueError for a position outside the chunk.
    """
    kept, tokens = initial.shape[0], inputs.shape[0]
    if not 0 <= position <= tokens:
        raise ValueError(f"position {position} is outside the chunk: must be 0 to {tokens}")
    from_initial = max(0, kept - position)
    return torch.cat([initial[kept - from_initial :], inputs[max(0, position - kept) : position]])
