"""vLLM's general_plugins entry point."""

from __future__ import annotations


def register() -> None:
    """Run by vLLM in each of its processes. Idempotent; touches nothing when FlashState is off."""
    from flashstate.plugin.settings import OFF, read_settings

    settings = read_settings()
    if settings.mode == OFF:
        return
    from flashstate.plugin import patches

    patches.use_our_scheduler(settings.mode)
    patches.drop_cpu_prefill_checkpoints()
