"""A script that starts a real engine on a tiny model and writes what its cache looks like and what it says as JSON.

A process of its own, so that the memory of one engine is free before the next one starts.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler is then within reach
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_PLUGINS": "",  # stock vLLM: these tests are about the models
}


def probe(family_name: str, folder: str) -> dict[str, Any]:
    from vllm import LLM, SamplingParams
    from vllm.v1.kv_cache_interface import MambaSpec

    from flashstate.models.tiny import FAMILIES

    family = FAMILIES[family_name]
    llm = LLM(
        folder,
        dtype="bfloat16",
        block_size=family.block_size,
        # Stock Mamba-2 cannot cache prefixes on a CPU; without caching, blocks are grouped just the same.
        enable_prefix_caching=family.mixer != "mamba2",
        mamba_ssm_cache_dtype="float32",
        enforce_eager=True,
        num_gpu_blocks_override=64,
        max_model_len=4096,
        seed=0,
    )
    groups = llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_config.kv_cache_groups
    greedy = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=20)
    draw = random.Random(7)
    prompt = [draw.randrange(8, family.vocab_size) for _ in range(400)]
    other_start = [draw.randrange(8, family.vocab_size) for _ in range(64)] + prompt[64:]
    answers = []
    for ids in (prompt, prompt, other_start):
        if family.mixer != "mamba2":
            llm.reset_prefix_cache()
        output = llm.generate({"prompt_token_ids": ids}, greedy, use_tqdm=False)[0].outputs[0]
        first = {str(token): entry.logprob for token, entry in output.logprobs[0].items()}
        answers.append({"tokens": list(output.token_ids), "first_logprobs": first})
    return {
        "recurrent_groups": sum(isinstance(group.kv_cache_spec, MambaSpec) for group in groups),
        "groups": len(groups),
        "block_sizes": sorted({group.kv_cache_spec.block_size for group in groups if _is_attention(group)}),
        "page_bytes": sorted({group.kv_cache_spec.page_size_bytes for group in groups}),
        "answers": answers,
    }


def _is_attention(group: Any) -> bool:
    return "Attention" in type(group.kv_cache_spec).__name__


if __name__ == "__main__":
    os.environ.update(SETTINGS)
    family_name, folder, out = sys.argv[1:]
    Path(out).write_text(json.dumps(probe(family_name, folder)))
