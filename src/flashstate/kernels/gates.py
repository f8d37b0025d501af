"""From a layer's raw projections to the gates the kernels take."""

from __future__ import annotations

import torch

SOFTPLUS_THRESHOLD = 20.0
"""Above it softplus(x) is x, in Flash Linear Attention and vLLM alike."""


def kda_log_decay(
    raw_gate: torch.Tensor, a_log: torch.Tensor, dt_bias: torch.Tensor, lower_bound: float | None = None
) -> torch.Tensor:
    """KDA's log-decay: -exp(a_log) * softplus(raw_gate + dt_bias), or with a lower bound, the "safe gate":
    lower_bound * sigmoid(exp(a_log) * (raw_gate + dt_bias)).

    raw_gate: [T, H, K], any float type. a_log: [H]. dt_bias: [H * K] or [H, K]. lower_bound: below 0, at least -5 in
    vLLM; the model's `gate_lower_bound`.
    Returns [T, H, K] float32, never positive, contiguous. Raises ValueError for shapes that do not fit.
    As in vLLM 0.32: models/kimi_k3/amd/ops/third_party/kda/fused_recurrent.py.
    """
    heads, key_dim = raw_gate.shape[-2:]
    if a_log.numel() != heads or dt_bias.numel() != heads * key_dim:
        raise ValueError(
            f"a_log is {tuple(a_log.shape)} and dt_bias {tuple(dt_bias.shape)}: "
            f"must be ({heads},) and ({heads * key_dim},) for raw_gate {tuple(raw_gate.shape)}"
        )
    if lower_bound is not None and lower_bound >= 0:
        raise ValueError(f"lower_bound is {lower_bound}: must be below 0")
    gate = raw_gate.float() + dt_bias.float().view(heads, key_dim)
    rate = a_log.float().view(heads, 1).exp()
    if lower_bound is not None:
        return lower_bound * torch.sigmoid(rate * gate)
    return -rate * torch.nn.functional.softplus(gate, threshold=SOFTPLUS_THRESHOLD)
