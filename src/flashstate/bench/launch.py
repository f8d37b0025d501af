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
CHUNK_TOKENS = 320
"""Of one prompt in a step: two blocks, as the 8,704 of the paper's benchmark are of GLM-5.3-Flash's."""
_STEP_CHUNKS = 2
_KV_SPACE_GIB = 4


def serve_command(
    engine: Engine,
    model: Path,
    family: Family,
    blocks: int,
    most_tokens: int,
    port: int,
    chunk_tokens: int = CHUNK_TOKENS,
) -> list[str]:
    """What to run. Model, cache, block size and limits are the same for all engines."""
    return [
        *(sys.executable, "-m", "flashstate", "serve", str(model)),
        *("--mode", engine.mode),
        *family.vllm_args,
        *engine.arguments,
        *("--num-gpu-blocks-override", str(blocks)),
        *("--max-model-len", str(most_tokens)),
        *("--long-prefill-token-threshold", str(min(chunk_tokens, most_tokens))),
        *("--max-num-batched-tokens", str(_STEP_CHUNKS * chunk_tokens)),
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
