"""The command and the environment that start one engine's server."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flashstate.bench.cores import Cores
from flashstate.bench.engine import Engine
from flashstate.bench.server import HOST
from flashstate.models.tiny import Family

MODEL_NAME = "demo"
_BATCHED_TOKENS = 2048
_KV_SPACE_GIB = 4


def serve_command(
    engine: Engine, model: Path, family: Family, blocks: int, most_tokens: int, port: int
) -> list[str]:
    """What to run. Model, cache, block size and limits are the same for all engines."""
    return [
        *(sys.executable, "-m", "flashstate", "serve", str(model)),
        *("--mode", engine.mode),
        *family.vllm_args,
        *engine.arguments,
        *("--num-gpu-blocks-override", str(blocks)),
        *("--max-model-len", str(most_tokens)),
        *("--max-num-batched-tokens", str(_BATCHED_TOKENS)),
        *("--served-model-name", MODEL_NAME),
        *("--host", HOST, "--port", str(port)),
        "--enforce-eager",
        "--enable-prompt-tokens-details",
        "--disable-uvicorn-access-log",
    ]


def serve_environment(cores: Cores) -> dict[str, str]:
    """Ours, plus: one compute thread, on its core, and nothing fetched from or told to anybody."""
    return os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": str(_KV_SPACE_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": str(cores.compute),
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
    }
