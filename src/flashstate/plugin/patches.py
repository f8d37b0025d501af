"""The functions of vLLM's that are replaced, each only where it is what we expect; `worker_export*` has the rest."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from flashstate.plugin.seams import EVERY_EXPORT_SEAM, check_seams

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.config.scheduler import SchedulerConfig

_MARK = "_flashstate"


def use_our_scheduler(mode: str) -> None:
    """Make `SchedulerConfig.get_scheduler_cls` answer ours where the user named no class. Idempotent."""
    from vllm.config.scheduler import SchedulerConfig

    stock = SchedulerConfig.get_scheduler_cls
    if hasattr(stock, _MARK):
        return
    check_seams()

    @functools.wraps(stock)
    def get_scheduler_cls(self: SchedulerConfig) -> Any:
        if self.scheduler_cls is not None:
            raise ValueError(
                f"flashstate is switched on but --scheduler-cls {self.scheduler_cls} names another scheduler: "
                "drop one of them"
            )
        from flashstate.plugin.scheduler import scheduler_class

        return scheduler_class(mode, bool(self.async_scheduling))

    setattr(get_scheduler_cls, _MARK, stock)
    SchedulerConfig.get_scheduler_cls = get_scheduler_cls


def drop_cpu_prefill_checkpoints() -> None:
    """On CPU, stop Mamba-2 layers from offering checkpoints inside a prefill chunk. Idempotent.

    vLLM 0.32's `MambaMixer2.get_kv_cache_spec` offers them on every platform, but the CPU scan returns final
    states only and fails with an IndexError as soon as a prompt crosses a block. Without the offer vLLM ends
    the chunk at the block boundary instead.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2
    from vllm.v1.kv_cache_interface import MambaSpec

    stock = MambaMixer2.get_kv_cache_spec
    fields = {field.name for field in dataclasses.fields(MambaSpec)}
    if (
        hasattr(stock, _MARK)
        or not {"num_prefill_checkpoint_blocks", "prefill_checkpoint_alignment"} <= fields
    ):
        return

    @functools.wraps(stock)
    def get_kv_cache_spec(self: Any, vllm_config: VllmConfig) -> Any:
        spec = stock(self, vllm_config)
        if not isinstance(spec, MambaSpec):
            return spec
        return dataclasses.replace(spec, num_prefill_checkpoint_blocks=0, prefill_checkpoint_alignment=None)

    setattr(get_kv_cache_spec, _MARK, stock)
    MambaMixer2.get_kv_cache_spec = get_kv_cache_spec


def export_inside_chunks(choice: str) -> None:
    """Let a state come out from inside a prefill chunk, where `choice` of the settings and the kernels allow.

    Idempotent. See `worker_export` and `worker_export_cuda`.
    """
    from vllm.platforms import current_platform

    from flashstate.plugin.support import why_no_hook

    if why_no_hook(choice) is not None:
        return
    if current_platform.is_cpu():
        from flashstate.plugin.worker_export import install
    else:
        from flashstate.plugin.worker_export_cuda import install
    install()


def hooked() -> list[str]:
    """Names of the functions replaced in this process."""
    from vllm.config.scheduler import SchedulerConfig

    names = []
    if hasattr(SchedulerConfig.get_scheduler_cls, _MARK):
        names.append("SchedulerConfig.get_scheduler_cls")
    try:
        from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2
    except ImportError:
        return names
    if hasattr(MambaMixer2.get_kv_cache_spec, _MARK):
        names.append("MambaMixer2.get_kv_cache_spec")
    return names + [seam.name for seam in EVERY_EXPORT_SEAM if hasattr(seam.target(), _MARK)]
