"""vLLM's general_plugins entry point."""

from __future__ import annotations

import os


def register() -> None:
    """Run by vLLM in each of its processes. Idempotent; touches nothing when FlashState is off."""
    from flashstate.plugin.settings import OFF, ON, read_settings

    settings = read_settings()
    if settings.mode == OFF:
        return
    from flashstate.plugin import patches

    patches.use_our_scheduler(settings.mode)
    patches.drop_cpu_prefill_checkpoints()
    if settings.mode == ON and settings.mamba_prefill_export:
        patches.export_inside_chunks(settings.in_chunk_export)
    register_models()


def register_models() -> None:
    """On CPU, serve Kimi-Linear by our own class: vLLM's needs CUDA-only kernels, so this takes nothing away."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm import ModelRegistry

    # By name, so that nothing is imported until such a model is served.
    ModelRegistry.register_model(
        "KimiLinearForCausalLM", "flashstate.models.kimi_linear:KimiLinearForCausalLM"
    )
    # Our class caches plain keys and values. vLLM would size the blocks for MLA's latent, and on a CPU without AMX
    # switch prefix caching off for it. This is vLLM's own switch; it is inherited by the processes it starts. No other
    # hybrid with MLA runs on a CPU.
    os.environ.setdefault("VLLM_MLA_DISABLE", "1")
