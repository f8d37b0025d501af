"""What FlashState does not support yet, each with its reason. Refused at start, by name, never silently off."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flashstate.plugin.seams import cuda_export_problem, export_problem
from flashstate.plugin.settings import INSIDE_AUTO, INSIDE_OFF, INSIDE_ON

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig


class UnsupportedError(ValueError):
    """FlashState is switched on where it cannot keep its promises."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(
            "flashstate cannot run here: " + "; ".join(reasons) + ". Change that, or switch flashstate off "
            "(unset FLASHSTATE, or flashstate serve --mode off)"
        )


@dataclass(frozen=True, slots=True)
class Features:
    """The features of vLLM that are refused, as they are set."""

    pipeline_parallel_size: int = 1
    speculative_config: Any = None
    kv_transfer_config: Any = None
    kv_offloading_size: float | None = None
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    enable_prefix_caching: bool | None = True
    mamba_cache_mode: str | None = None
    scheduler_cls: Any = None

    @classmethod
    def of_config(cls, config: VllmConfig) -> Features:
        parallel, cache = config.parallel_config, config.cache_config
        return cls(
            pipeline_parallel_size=parallel.pipeline_parallel_size,
            speculative_config=config.speculative_config,
            kv_transfer_config=config.kv_transfer_config,
            decode_context_parallel_size=parallel.decode_context_parallel_size,
            prefill_context_parallel_size=parallel.prefill_context_parallel_size,
            enable_prefix_caching=cache.enable_prefix_caching,
            mamba_cache_mode=cache.mamba_cache_mode,
            scheduler_cls=config.scheduler_config.scheduler_cls,
        )

    @classmethod
    def of_arguments(cls, arguments: Namespace) -> Features:
        """From the parsed command line of `vllm serve`, before anything is started."""
        given = vars(arguments)
        return cls(**{name: given[name] for name in cls.__dataclass_fields__ if given.get(name) is not None})

    def refusals(self) -> list[str]:
        """Why these are refused, as 'option: reason'; empty if they are not."""
        ranks = "a position's blocks span ranks, which our accounts do not know"
        checks = [
            (
                self.pipeline_parallel_size > 1,
                f"--pipeline-parallel-size {self.pipeline_parallel_size}: several steps of a request can be "
                "unfinished, so a state's position is not known when it is captured",
            ),
            (
                bool(self.speculative_config),
                "--speculative-config: rejected draft tokens move a state's position after the fact",
            ),
            (
                bool(self.kv_transfer_config),
                "--kv-transfer-config: a KV connector loads and frees blocks behind our accounts",
            ),
            (
                bool(self.kv_offloading_size),
                f"--kv-offloading-size {self.kv_offloading_size}: it works through a KV connector, which loads and "
                "frees blocks behind our accounts",
            ),
            (
                self.decode_context_parallel_size > 1,
                f"--decode-context-parallel-size {self.decode_context_parallel_size}: {ranks}",
            ),
            (
                self.prefill_context_parallel_size > 1,
                f"--prefill-context-parallel-size {self.prefill_context_parallel_size}: {ranks}",
            ),
            (
                self.enable_prefix_caching is False,
                "--no-enable-prefix-caching: there is nothing to resume from",
            ),
            (
                self.mamba_cache_mode == "all",
                "--mamba-cache-mode all: it keeps a state a block; flashstate keeps its own in mode align",
            ),
            (
                self.scheduler_cls is not None,
                f"--scheduler-cls {self.scheduler_cls}: flashstate is a scheduler class itself",
            ),
        ]
        return [reason for refused, reason in checks if refused]


def layout_refusals(config: VllmConfig, kv_cache: KVCacheConfig) -> list[str]:
    """Why this model's cache layout is refused; empty if it is not."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, MLAAttentionSpec

    specs = [group.kv_cache_spec for group in kv_cache.kv_cache_groups]
    if not any(isinstance(spec, MambaSpec) for spec in specs):
        return ["this model has no recurrent layers: vLLM's own prefix caching is all it needs"]
    reasons = []
    if not any(isinstance(spec, FullAttentionSpec) for spec in specs):
        reasons.append("this model has no attention layers: its states are its whole cache")
    mode = config.cache_config.mamba_cache_mode
    if mode != "align":
        reasons.append(f"--mamba-cache-mode {mode}: states are kept apart only in mode align")
    known = (FullAttentionSpec, MLAAttentionSpec, MambaSpec)
    others = sorted({type(spec).__name__ for spec in specs if type(spec) not in known})
    if others:
        reasons.append(f"layers of kind {', '.join(others)}: their blocks are freed while a request runs")
    sizes = sorted({spec.block_size for spec in specs})
    if len(sizes) > 1:
        reasons.append(f"layers with unequal block sizes {sizes}: one position needs one block of each")
    return reasons


IN_CHUNK_LAYERS = ("GDN_ATTN", "MAMBA2", "SHORT_CONV")
"""Kinds of recurrent layers, by vLLM's name of their backend, whose CPU kernels we take states from.

Our KDA layer has GDN's backend."""

CUDA_LAYERS = ("GDN_ATTN",)
CUDA_MODELS = ("Qwen3Next", "Qwen3_5")
"""How the architectures' names begin whose GDN layers are hooked on CUDA; other models bring layers of their own."""
CUDA_BACKENDS = ("auto", "triton", "flashinfer")
"""Of vLLM's --gdn-prefill-backend."""

EXECUTORS = (None, "uni", "mp", "external_launcher")
"""Of vLLM's --distributed-executor-backend: those that run each step through WorkerWrapperBase.execute_model."""

NEVER_RUN = "our hook of vLLM's CUDA kernels has never run on hardware"
NO_KERNEL_HOOKED = "only vLLM's CPU and CUDA kernels are hooked"


def why_no_hook(choice: str) -> str | None:
    """Why no kernel of this platform may export inside a prefill chunk, with `choice` of settings.INSIDE.

    None if any may.
    """
    from vllm.platforms import current_platform

    if choice == INSIDE_OFF:
        return "--in-chunk-export off"
    if current_platform.is_cpu():
        return export_problem()
    if not current_platform.is_cuda():
        return NO_KERNEL_HOOKED
    if choice != INSIDE_ON:
        return f"{NEVER_RUN}; --in-chunk-export on uses it, for GDN layers"
    return cuda_export_problem()


def why_not_in_chunk(
    kv_cache: KVCacheConfig, choice: str = INSIDE_AUTO, config: VllmConfig | None = None
) -> str | None:
    """Why no state of this model can be exported from inside a prefill chunk; None if it can.

    config: what the engine runs; None asks nothing of it.
    """
    from vllm.platforms import current_platform
    from vllm.v1.kv_cache_interface import MambaSpec

    problem = why_no_hook(choice)
    if problem is not None:
        return problem
    is_cpu = current_platform.is_cpu()
    specs = [group.kv_cache_spec for group in kv_cache.kv_cache_groups]
    kinds = {spec.mamba_type.name for spec in specs if isinstance(spec, MambaSpec)}
    others = sorted(kinds - set(IN_CHUNK_LAYERS if is_cpu else CUDA_LAYERS))
    if others:
        return f"layers of kind {', '.join(others)} have no exporter{'' if is_cpu else ' on CUDA'}"
    if config is None:
        return None
    executor = config.parallel_config.distributed_executor_backend
    if executor not in EXECUTORS:
        return f"--distributed-executor-backend {executor} runs steps past the place where we hook the worker"
    return None if is_cpu else _why_not_on_cuda(config)


def _why_not_on_cuda(config: VllmConfig) -> str | None:
    architectures = config.model_config.architectures
    if not any(name.startswith(CUDA_MODELS) for name in architectures):
        names = ", ".join(architectures)
        return (
            f"{names} may bring GDN layers of its own; on CUDA those of {', '.join(CUDA_MODELS)} are hooked"
        )
    if config.parallel_config.use_ubatching:
        return "--enable-dbo and --ubatch-size run a step in parts, which our hook does not know"
    extra = config.additional_config
    backend = (
        str(extra.get("gdn_prefill_backend", "auto") if isinstance(extra, dict) else "auto").strip().lower()
    )
    if backend not in CUDA_BACKENDS:
        return f"--gdn-prefill-backend {backend} is not hooked: use one of {', '.join(CUDA_BACKENDS)}"
    return None
