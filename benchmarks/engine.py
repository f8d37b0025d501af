"""A vLLM engine whose scheduler can be swapped between steps: stock against ours over one and the same model runner.

Two engines in two processes differ by several per cent in speed with no plugin in either, by where their memory lies.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from time import thread_time
from typing import Any

STOCK, ON = "off", "flashstate"
DECODE_BATCH = 8
PROMPT_TOKENS = 1500
WARM_UP_STEPS = 30


class SwappingEngine:
    """Steps one tiny model in this process. Every prompt is new, so nothing is ever resumed.

    Times are CPU seconds of the one thread that schedules and computes: what else runs on the machine does not count.
    """

    def __init__(self, model: Path, block_tokens: int, vocab_size: int, core: int) -> None:
        """Computes on CPU core `core`, with the stock scheduler."""
        os.environ.update(
            VLLM_ENABLE_V1_MULTIPROCESSING="0",
            VLLM_LOGGING_LEVEL="ERROR",
            VLLM_CPU_KVCACHE_SPACE="1",
            VLLM_CPU_OMP_THREADS_BIND=str(core),
            OMP_NUM_THREADS="1",
            FLASHSTATE="0",
        )
        from vllm import LLM

        llm = LLM(
            str(model),
            dtype="bfloat16",
            block_size=block_tokens,
            mamba_cache_mode="align",
            mamba_ssm_cache_dtype="float32",
            enable_prefix_caching=True,
            enforce_eager=True,
            max_model_len=16384,
            max_num_batched_tokens=2048,
            num_gpu_blocks_override=900,
            max_num_seqs=16,
            skip_tokenizer_init=True,
        )
        self._engine = llm.llm_engine
        core_engine: Any = self._engine.engine_core
        self._core = core_engine.engine_core
        self._schedulers = {STOCK: self._core.scheduler, ON: self._ours()}
        self._dice = random.Random(0)
        self._vocab = vocab_size
        self._asked = 0

    def _ours(self) -> Any:
        """The plugin's scheduler as `EngineCore` would have made it, over as many blocks."""
        from flashstate.plugin.scheduler import scheduler_class
        from flashstate.plugin.settings import Settings

        Settings(mode=ON).export(os.environ)
        stock = self._core.scheduler
        return scheduler_class(ON, is_async=False)(
            vllm_config=stock.vllm_config,
            kv_cache_config=stock.kv_cache_config,
            structured_output_manager=stock.structured_output_manager,
            include_finished_set=stock.finished_req_ids_dict is not None,
            log_stats=stock.log_stats,
            block_size=stock.block_size,
            hash_block_size=stock.hash_block_size,
        )

    def use(self, mode: str) -> None:
        """Schedule with STOCK or ON from here on. Only when idle."""
        assert not self._engine.has_unfinished_requests()
        self._core.scheduler = self._schedulers[mode]

    @property
    def counters(self) -> dict[str, Any]:
        """What the plugin has counted."""
        counted: dict[str, Any] = self._schedulers[ON].keeper.cache.counters.snapshot()
        return counted

    def decode(self, steps: int) -> list[float]:
        """Seconds of each of `steps` steps with DECODE_BATCH requests running."""
        for _ in range(DECODE_BATCH):
            self._add(64, WARM_UP_STEPS + steps + 8)
        for _ in range(WARM_UP_STEPS):
            self._engine.step()
        times = []
        for _ in range(steps):
            began = thread_time()
            self._engine.step()
            times.append(thread_time() - began)
        self._finish()
        return times

    def prefill(self, prompts: int) -> list[float]:
        """Seconds of each of `prompts` requests from arrival to end, one output token each."""
        times = []
        for _ in range(prompts):
            began = thread_time()
            self._add(PROMPT_TOKENS, 1)
            self._finish()
            times.append(thread_time() - began)
        return times

    def _add(self, tokens: int, max_tokens: int) -> None:
        from vllm import SamplingParams, TokensPrompt

        ids = [self._dice.randrange(5, self._vocab) for _ in range(tokens)]
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True, detokenize=False)
        self._asked += 1
        self._engine.add_request(f"r{self._asked}", TokensPrompt(prompt_token_ids=ids), params)

    def _finish(self) -> None:
        while self._engine.has_unfinished_requests() or self._core.scheduler.has_requests():
            self._engine.step()
