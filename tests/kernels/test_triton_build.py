"""The Triton kernels compiled, without a GPU, for those that would serve them."""

from __future__ import annotations

import pytest
import torch

from flashstate.kernels.triton.build import ARCHITECTURES, LAYERS, KernelUse, Layer, compile_layer


def named(layer: Layer) -> str:
    return layer.recurrence.value


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("layer", LAYERS, ids=named)
def test_the_kernels_build_and_fit_the_registers(layer: Layer, kind: torch.dtype, architecture: int) -> None:
    uses = compile_layer(layer, kind, architecture)
    assert [use.kernel for use in uses] == ["prepare", "scan"]
    for use in uses:
        assert use.kind is kind and use.recurrence is layer.recurrence
        assert_fits(use)


def assert_fits(use: KernelUse) -> None:
    assert use.architecture in ARCHITECTURES and use.cubin_bytes > 10_000
    assert 32 <= use.registers <= 255
    assert use.stack_bytes <= 128
    assert use.local_accesses * 4 <= 256  # instructions that touch the stack: a few at most
    assert 0 < use.shared_bytes <= 113 * 1024  # two programs a multiprocessor of 227 KiB
