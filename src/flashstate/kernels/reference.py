"""The recurrence of `base`, token by token in float64: what every kernel is measured against."""

from __future__ import annotations

import torch

from flashstate.kernels.base import ChunkInputs, ChunkOutputs, Recurrence, check_inputs


def reference(inputs: ChunkInputs) -> ChunkOutputs:
    """Slow and plain. Output and states are float64, whatever the inputs' types; exports are exact at every offset."""
    check_inputs(inputs)
    tokens, heads, value_dim = inputs.v.shape
    key_dim = inputs.k.shape[2]
    sequences = inputs.cu_seqlens.numel() - 1
    repeat = heads // inputs.k.shape[1]
    q = inputs.q.double().repeat_interleave(repeat, dim=1) * inputs.scale
    k = inputs.k.double().repeat_interleave(repeat, dim=1)
    v, beta, decay = inputs.v.double(), inputs.beta.double(), inputs.log_decay.double().exp()
    if inputs.recurrence is not Recurrence.KDA:
        decay = decay[:, :, None].expand(tokens, heads, key_dim)

    shape = (sequences, heads, value_dim, key_dim)
    states = torch.zeros(shape, dtype=torch.float64, device=v.device)
    if inputs.initial_state is not None:
        states += inputs.initial_state
    checkpoint = None if inputs.export_offsets is None else torch.zeros_like(states)
    offsets = [0] * sequences if inputs.export_offsets is None else inputs.export_offsets.tolist()
    output = torch.zeros(v.shape, dtype=torch.float64, device=v.device)
    bounds = inputs.cu_seqlens.tolist()
    for n in range(sequences):
        state = states[n]
        for t in range(bounds[n], bounds[n + 1]):
            state = state * decay[t][:, None, :]
            read = 0.0 if inputs.recurrence is Recurrence.MAMBA2 else torch.einsum("hvk,hk->hv", state, k[t])
            state = state + (beta[t][:, None] * (v[t] - read))[:, :, None] * k[t][:, None, :]
            output[t] = torch.einsum("hvk,hk->hv", state, q[t])
            if checkpoint is not None and t - bounds[n] + 1 == offsets[n]:
                checkpoint[n] = state
        states[n] = state
    return ChunkOutputs(output, states, checkpoint)
