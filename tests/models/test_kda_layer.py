"""The parts of our KDA layer and model class that need no engine."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

pytest.importorskip("vllm")

from vllm.forward_context import ForwardContext, override_forward_context
from vllm.model_executor.layers.mamba.ops.cpu.causal_conv1d import causal_conv1d_fn_cpu
from vllm.transformers_utils.configs.kimi_linear import KimiLinearConfig

from flashstate.models.families import FAMILIES
from flashstate.models.kda import EXPORTS_KEY, Batch, Exports, export_convolution, exports_of, row_sigmoid
from flashstate.models.kimi_linear import check_supported

TAPS = 4


def make_context(exports: dict[int, tuple[int, int]] | None) -> Any:
    extra = {} if exports is None else {EXPORTS_KEY: exports}
    context = ForwardContext(no_compile_layers={}, attn_metadata={}, slot_mapping={}, additional_kwargs=extra)
    return override_forward_context(context)


def make_config(**changed: Any) -> KimiLinearConfig:
    return KimiLinearConfig(**{**FAMILIES["kda"].config, **changed})


def blocks(*ids: int) -> torch.Tensor:
    return torch.tensor(ids, dtype=torch.int32)


@pytest.mark.parametrize("exports", [None, {}, {9: (5, 8)}])
def test_a_step_that_exports_nothing_of_these_sequences(exports: dict[int, tuple[int, int]] | None) -> None:
    with make_context(exports):
        assert exports_of(blocks(3, 4)) is None


def test_exports_find_their_sequences_by_their_live_blocks() -> None:
    with make_context({4: (17, 30), 9: (5, 8)}):
        found = exports_of(blocks(3, 4, 7))
    assert found is not None
    assert found.offsets.tolist() == [0, 17, 0]
    assert found.destinations.tolist()[1] == 30
    assert found.offsets.dtype == found.destinations.dtype == torch.int32


@pytest.mark.parametrize("offset", [1, TAPS - 2, TAPS - 1, TAPS, 9])
@pytest.mark.parametrize("is_warm", [True, False])
def test_an_exported_convolution_state_is_that_of_a_call_cut_there(offset: int, is_warm: bool) -> None:
    draw = torch.Generator().manual_seed(offset)
    pool = torch.randn(6, TAPS - 1, 8, generator=draw)
    inputs = torch.randn(3 + 9, 8, generator=draw)  # another sequence before it
    batch = Batch(
        tokens=12,
        cu_seqlens=torch.tensor([0, 3, 12], dtype=torch.int32),
        state_blocks=blocks(2, 4),
        has_initial_state=torch.tensor([True, is_warm]),
    )
    cut = pool.clone()
    causal_conv1d_fn_cpu(
        x=inputs[3 : 3 + offset].T,
        weight=torch.ones(8, TAPS),
        bias=None,
        conv_states=cut.transpose(1, 2),
        query_start_loc=torch.tensor([0, offset], dtype=torch.int32),
        cache_indices=blocks(4),
        has_initial_state=torch.tensor([is_warm]),
    )
    before = pool.clone()
    exports = Exports(offsets=blocks(0, offset), destinations=blocks(0, 5))
    export_convolution(pool, inputs, batch, exports)
    assert torch.equal(pool[5], cut[4])
    assert torch.equal(pool[:5], before[:5])


@pytest.mark.parametrize("heads", [1, 4, 32, 100])
def test_a_token_s_beta_does_not_depend_on_its_batch(heads: int) -> None:
    raw = torch.randn(37, heads, generator=torch.Generator().manual_seed(heads)).bfloat16()
    together = row_sigmoid(raw)
    assert together.is_contiguous()
    assert torch.equal(together, torch.cat([row_sigmoid(raw[i : i + 1]) for i in range(37)]))
    torch.testing.assert_close(together, raw.double().sigmoid().float(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"mla_use_nope": False}, "mla_use_nope False: must be true"),
        ({"q_lora_rank": 64}, "q_lora_rank 64: must be null"),
        ({"attn_res_block_size": 8}, "attn_res_block_size 8: must be null"),
        ({"num_key_value_heads": 1}, "num_key_value_heads 1: must be the 2 of num_attention_heads"),
        ({"hidden_act": "situ"}, "hidden_act situ: must be silu"),
        (
            {
                "linear_attn_config": {
                    **FAMILIES["kda"].config["linear_attn_config"],
                    "gate_lower_bound": -5.0,
                }
            },
            "linear_attn_config.gate_lower_bound: must be absent",
        ),
    ],
)
def test_a_model_we_would_compute_wrongly_is_refused_by_name(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as error:
        check_supported(make_config(**changed), uses_mla=False)
    assert "\n" not in str(error.value)


def test_a_cache_sized_for_the_latent_is_refused_with_a_way_out() -> None:
    check_supported(make_config(), uses_mla=False)
    with pytest.raises(ValueError, match="VLLM_MLA_DISABLE=0: must be 1, or unset"):
        check_supported(make_config(), uses_mla=True)


REGISTERED = """
import os, sys
from vllm import ModelRegistry
from flashstate.plugin.register import register

def registered():
    entry = ModelRegistry.models["KimiLinearForCausalLM"]
    return entry.module_name, os.environ.get("VLLM_MLA_DISABLE")

register()
print(registered())
os.environ["FLASHSTATE"] = "1"
register()
print(registered(), "flashstate.models.kimi_linear" in sys.modules)
"""


@pytest.mark.slow  # importing vLLM takes ten seconds; test_kimi_linear.py serves the class, and test_off.py stock vLLM
def test_the_class_is_registered_by_name_and_only_while_flashstate_is_on() -> None:
    # A process of its own: vLLM's registry is one for the whole process.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FLASHSTATE", "VLLM"))}
    command = [sys.executable, "-c", REGISTERED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=clean)
    off, on = done.stdout.splitlines()[-2:]
    assert off == "('vllm.models.kimi_k3', None)"
    assert on == "('flashstate.models.kimi_linear', '1') False"
