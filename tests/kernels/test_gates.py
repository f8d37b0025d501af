from __future__ import annotations

import math

import pytest
import torch

from flashstate.kernels.gates import kda_log_decay


def make_gate(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    raw = 10 * torch.randn(5, 2, 16, generator=draw)
    return raw.to(dtype), torch.randn(2, generator=draw), torch.randn(32, generator=draw)


@pytest.mark.parametrize("lower_bound", [None, -5.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_is_the_published_formula(lower_bound: float | None, dtype: torch.dtype) -> None:
    raw, a_log, dt_bias = make_gate(dtype)
    actual = kda_log_decay(raw, a_log, dt_bias, lower_bound)
    assert actual.dtype == torch.float32 and actual.is_contiguous()
    for t, h, c in [(0, 0, 0), (4, 1, 15), (2, 0, 7), (3, 1, 1)]:
        gate = float(raw[t, h, c]) + float(dt_bias[h * 16 + c])
        rate = math.exp(a_log[h])
        if lower_bound is None:
            expected = -rate * (gate if gate > 20 else math.log1p(math.exp(gate)))
        else:
            expected = lower_bound / (1 + math.exp(-rate * gate))
        assert float(actual[t, h, c]) == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_is_never_positive_nor_below_its_bound(lower_bound: float | None) -> None:
    raw, a_log, dt_bias = make_gate()
    actual = kda_log_decay(20 * raw, a_log, dt_bias, lower_bound)
    assert actual.isfinite().all() and (actual <= 0).all()
    assert lower_bound is None or (actual >= lower_bound).all()


def test_refuses_what_does_not_fit() -> None:
    raw, a_log, dt_bias = make_gate()
    with pytest.raises(ValueError, match=r"a_log is \(2,\) and dt_bias \(31,\): must be \(2,\) and \(32,\)"):
        kda_log_decay(raw, a_log, dt_bias[:31])
    with pytest.raises(ValueError, match=r"lower_bound is 0.5: must be below 0"):
        kda_log_decay(raw, a_log, dt_bias, 0.5)
