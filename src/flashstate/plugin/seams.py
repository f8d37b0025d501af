"""The places where FlashState takes hold of vLLM, with the signatures it was written against."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import vllm

VERSIONS = ("0.32", "0.33")


class SeamError(RuntimeError):
    """This vLLM is not one FlashState knows."""


@dataclass(frozen=True, slots=True)
class Seam:
    """A function of vLLM's that is overridden or called, and the parameters it must have (without self)."""

    module: str
    name: str
    parameters: tuple[str, ...]
    use: str
    """What we do with it."""
    optional: tuple[str, ...] = ()
    """Parameters that some of the versions have."""

    def target(self) -> object:
        """The function in the installed vLLM; None if it is missing."""
        try:
            target: object = import_module(self.module)
            for part in self.name.split("."):
                target = getattr(target, part)
        except (ImportError, AttributeError):
            return None
        return target

    def problem(self) -> str | None:
        """What is wrong with it in the installed vLLM; None if nothing is."""
        target = self.target()
        if not callable(target):
            return f"{self.name} is missing from {self.module}"
        return self.mismatch(list(inspect.signature(target).parameters))

    def mismatch(self, found: list[str]) -> str | None:
        """What is wrong with the parameters `found`; None if nothing is."""
        found = [parameter for parameter in found if parameter not in ("self", "cls")]
        if tuple(parameter for parameter in found if parameter not in self.optional) != self.parameters:
            return f"{self.name}({', '.join(found)}) should be ({', '.join(self.parameters)})"
        return None


def source_problem(seam: Seam, source: str) -> str | None:
    """What is wrong with `seam` in its module's `source`, which is parsed, not run; None if nothing is."""
    scope: list[ast.stmt] = ast.parse(source).body
    *classes, function = seam.name.split(".")
    for name in classes:
        scope = next(
            (node.body for node in scope if isinstance(node, ast.ClassDef) and node.name == name), []
        )
    for node in scope:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            given = node.args
            every = (*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg)
            return seam.mismatch([argument.arg for argument in every if argument is not None])
    return f"{seam.name} is missing"


_SCHEDULER = "vllm.v1.core.sched.scheduler"
_POOL = "vllm.v1.core.block_pool"
_UTILS = "vllm.v1.core.kv_cache_utils"

REPLACED, OVERRIDDEN, CALLED = "replaced", "overridden in a subclass", "called"

SEAMS = (
    Seam("vllm.config.scheduler", "SchedulerConfig.get_scheduler_cls", (), REPLACED),
    Seam(
        _SCHEDULER,
        "Scheduler._get_local_prefix_cache_hit",
        ("request",),
        OVERRIDDEN,
        optional=("max_cache_hit_length",),
    ),
    Seam(_SCHEDULER, "Scheduler.add_request", ("request",), OVERRIDDEN),
    Seam(_SCHEDULER, "Scheduler._free_request_blocks", ("request",), OVERRIDDEN),
    Seam(
        _SCHEDULER,
        "Scheduler._mamba_block_aligned_split",
        ("request", "num_new_tokens", "num_new_local_computed_tokens", "num_external_computed_tokens"),
        OVERRIDDEN,
    ),
    Seam(_SCHEDULER, "Scheduler._handle_blocked_waiting_request", ("request",), OVERRIDDEN),
    Seam(
        _SCHEDULER, "Scheduler.reset_prefix_cache", ("reset_running_requests", "reset_connector"), OVERRIDDEN
    ),
    Seam(_POOL, "BlockPool.get_cached_block", ("block_hash", "kv_cache_group_ids"), CALLED),
    Seam(_POOL, "BlockPool.get_new_blocks", ("num_blocks",), CALLED),
    Seam(_UTILS, "FreeKVCacheBlockQueue.popleft_n", ("n",), OVERRIDDEN),
    Seam(_UTILS, "FreeKVCacheBlockQueue.append_n", ("blocks",), OVERRIDDEN),
    Seam(_UTILS, "FreeKVCacheBlockQueue.prepend_n", ("blocks",), OVERRIDDEN),
    Seam(_UTILS, "FreeKVCacheBlockQueue.remove", ("block",), OVERRIDDEN),
)

_CPU_OPS = "vllm.model_executor.layers.mamba.ops.cpu"
_CONVOLUTION = (
    "x",
    "weight",
    "bias",
    "conv_states",
    "query_start_loc",
    "cache_indices",
    "has_initial_state",
)

_WORKER = "vllm.v1.worker.worker_base"
_STEP = Seam(_WORKER, "WorkerWrapperBase.execute_model", ("scheduler_output",), REPLACED)

_FILING = Seam(
    "vllm.v1.core.single_type_kv_cache_manager",
    "MambaManager.cache_blocks",
    ("request", "num_tokens", "retention_interval", "replay_boundaries"),
    "replaced on the engine's own managers",
)

EXPORT_SEAMS = (
    _STEP,
    _FILING,
    Seam("vllm.platforms.interface", "Platform.set_additional_forward_context", ("args", "kwargs"), REPLACED),
    Seam(
        f"{_CPU_OPS}.gdn_attention",
        "_causal_conv1d_fwd_cpu",
        (*_CONVOLUTION, "silu_activation", "is_weight_packed"),
        REPLACED,
    ),
    Seam(
        f"{_CPU_OPS}.causal_conv1d",
        "causal_conv1d_fn_cpu",
        (*_CONVOLUTION, "activation", "pad_slot_id", "kwargs"),
        REPLACED,
    ),
    Seam(
        "vllm._custom_ops",
        "chunk_gated_delta_rule_cpu",
        (
            "query",
            "key",
            "value",
            "g",
            "beta",
            "initial_state",
            "output_final_state",
            "cu_seqlens",
            "head_first",
            "use_qk_l2norm_in_kernel",
            "initial_state_indices",
            "eps",
        ),
        REPLACED,
    ),
    Seam(
        "vllm._custom_ops",
        "mamba_chunk_scan_fwd_cpu",
        ("out", "final_states", "x", "dt", "A", "B", "C", "D", "z", "cu_seqlens"),
        REPLACED,
    ),
    Seam(
        "vllm.model_executor.layers.mamba.mamba_mixer2",
        "MambaMixer2.conv_ssm_forward",
        ("projected_states", "output"),
        REPLACED,
    ),
)
"""What states are exported by, on CPU. Without them FlashState works on, and ends chunks where it wants a state."""

_GDN = "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn"
_FLA_INDEX = "vllm.third_party.flash_linear_attention.ops.index"
_RULE = (
    "q",
    "k",
    "v",
    "g",
    "beta",
    "initial_state",
    "output_final_state",
    "cu_seqlens",
    "chunk_indices",
    "chunk_offsets",
    "use_qk_l2norm_in_kernel",
    "core_attn_out",
    "aiter_prefill_metadata",
)

CUDA_EXPORT_SEAMS = (
    _STEP,
    _FILING,
    Seam(_WORKER, "WorkerWrapperBase.init_device", (), REPLACED),
    Seam(
        _GDN,
        "QwenGatedDeltaNetAttention._forward_core",
        ("mixed_qkv", "b", "a", "core_attn_out"),
        REPLACED,
    ),
    Seam(_GDN, "ChunkGatedDeltaRule.forward_native", _RULE, REPLACED),
    Seam(_GDN, "ChunkGatedDeltaRule.forward_cuda", _RULE, REPLACED),
    Seam(_FLA_INDEX, "prepare_chunk_indices", ("cu_seqlens", "chunk_size"), CALLED),
    Seam(_FLA_INDEX, "prepare_chunk_offsets", ("cu_seqlens", "chunk_size"), CALLED),
    Seam("vllm.utils.torch_utils", "async_tensor_h2d", ("data", "device", "dtype", "out"), CALLED),
    Seam("vllm.utils.gpu_sync_debug", "gpu_sync_allowed", ("first_only",), CALLED),
    Seam("vllm.model_executor.layers.mamba.mamba_utils", "is_conv_state_dim_first", (), CALLED),
)
"""The same on CUDA."""

EVERY_EXPORT_SEAM = tuple(dict.fromkeys((*EXPORT_SEAMS, *CUDA_EXPORT_SEAMS)))


def vllm_version() -> str:
    """The installed vLLM's version."""
    return str(vllm.__version__)


def seam_problems() -> list[str]:
    """Everything about the installed vLLM that FlashState does not know how to handle."""
    version = vllm_version()
    known = any(version.startswith(prefix + ".") or version == prefix for prefix in VERSIONS)
    problems = [] if known else [f"vLLM {version} is not one of {', '.join(v + '.x' for v in VERSIONS)}"]
    return problems + [problem for seam in SEAMS if (problem := seam.problem()) is not None]


def export_problem() -> str | None:
    """The first thing about vLLM's CPU kernels that we do not know how to export from; None if there is none."""
    return next((problem for seam in EXPORT_SEAMS if (problem := seam.problem()) is not None), None)


def cuda_export_problem() -> str | None:
    """The same of its CUDA kernels. Read without importing them or their packages, which take hold of the device."""
    root = Path(str(vllm.__file__)).parents[1]
    for seam in CUDA_EXPORT_SEAMS:
        try:
            source = root.joinpath(*seam.module.split(".")).with_suffix(".py").read_text()
        except OSError as error:
            return f"{seam.module} cannot be read ({error.strerror})"
        problem = source_problem(seam, source)
        if problem is not None:
            return problem
    return None


def check_seams() -> None:
    """Raise SeamError unless every seam is as expected: better no FlashState than a guess."""
    problems = seam_problems()
    if problems:
        raise SeamError(
            f"flashstate does not fit this vLLM ({vllm_version()}): {'; '.join(problems)}. "
            "Install vllm 0.32 or 0.33, or unset FLASHSTATE"
        )
