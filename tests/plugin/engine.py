"""A real vLLM engine in a child process, driven step by step: what the plugin's tests run on.

One child is one engine, so that a test's async stand-ins and environment never leak into another's. Children fork from
a process that has imported vLLM (preload.py) and run nothing.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.plugin.lineage import Chunk, History, Lineage, Segment


@dataclass(frozen=True)
class Ask:
    """One request. `chunks`: follow exactly this schedule, reading nothing from the cache (a replay)."""

    name: str
    tokens: Sequence[int]
    max_tokens: int = 8
    stop_token_ids: tuple[int, ...] = ()
    salt: str | None = None
    chunks: History | None = None
    abort_after: int | None = None
    """Abort once this many tokens came out."""
    seed: int | None = None
    """Sample at temperature 1 by this seed."""
    extra: Mapping[str, Any] | None = None
    """What the client says beside: vLLM's extra_args."""


@dataclass(frozen=True)
class Answer:
    """What came of it."""

    tokens: list[int]
    cached: int
    logprobs: list[dict[int, float]]
    segments: tuple[Segment, ...]
    finished: bool = True

    @property
    def history(self) -> History:
        """The chunks behind its last token, from position 0 on."""
        return self.segments[-1].history

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks it computed itself since it (re)started last."""
        return tuple(chunk for chunk in self.history if chunk[0] >= self.segments[-1].resumed)


@dataclass
class EngineSpec:
    """Which engine to run."""

    model: Path
    block_size: int
    is_async: bool = False
    mode: str = "flashstate"
    settings: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


class Engine:
    """The child's side."""

    def __init__(self, spec: EngineSpec) -> None:
        from flashstate.plugin.settings import Settings

        set_variables()
        settings = {"check": spec.mode == "flashstate", "mamba_prefill_export": False, **spec.settings}
        Settings(mode=spec.mode, **settings).export(os.environ)
        os.environ.update(spec.environment)
        if spec.is_async:
            _stand_in_for_cuda_streams()
        from vllm import LLM

        self.llm = LLM(
            str(spec.model),
            **{
                "dtype": "bfloat16",
                "block_size": spec.block_size,
                "mamba_ssm_cache_dtype": "float32",
                "enable_prefix_caching": True,
                "enforce_eager": True,
                "max_model_len": 16384,
                "max_num_batched_tokens": 2048,
                "num_gpu_blocks_override": 900,
                "max_num_seqs": 16,
                "skip_tokenizer_init": True,
                "async_scheduling": spec.is_async,
                **spec.arguments,
            },
        )
        self.engine = self.llm.llm_engine
        self.core = self.engine.engine_core.engine_core
        self.scheduler = self.core.scheduler
        assert spec.is_async == (self.core.batch_queue is not None)
        self.lineage = Lineage(self.scheduler)
        self.forced: dict[str, dict[int, int]] = {}
        self.preemptions = 0
        self.outputs: dict[str, Any] = {}
        self.errors = _Errors()
        self._watch()
        self._force_chunks()

    def _watch(self) -> None:
        schedule, preempt = self.scheduler.schedule, self.scheduler._preempt_request

        def scheduling(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            self.lineage.scheduled(output)
            return output

        def preempting(*args: Any, **kwargs: Any) -> Any:
            self.preemptions += 1
            return preempt(*args, **kwargs)

        self.scheduler.schedule = scheduling
        self.scheduler._preempt_request = preempting

    def _force_chunks(self) -> None:
        stock = self.scheduler._mamba_block_aligned_split

        def split(request: Any, count: int, local: int = 0, external: int = 0) -> int:
            forced = self.forced.get(_name(request.request_id))
            if forced is None:
                return int(stock(request, count, local, external))
            start = request.num_computed_tokens + local + external
            count = min(count, forced.get(start, count))
            if self.exports_in_chunk():
                self.scheduler._export._filing.chunk(request.request_id, start, start + count)
            return count

        self.scheduler._mamba_block_aligned_split = split

    def run(self, asks: Sequence[Ask], max_steps: int | None = None) -> dict[str, Answer]:
        """Run all of `asks` together to their ends (or for `max_steps`)."""
        for ask in asks:
            self.submit(ask)
        aborts = {ask.name: ask.abort_after for ask in asks if ask.abort_after is not None}
        steps = 0
        while self.engine.has_unfinished_requests() and (max_steps is None or steps < max_steps):
            for name in self._step():
                limit, output = aborts.get(name), self.outputs[name]
                if limit is not None and len(output.outputs[0].token_ids) >= limit and not output.finished:
                    self.engine.abort_request([name])
            steps += 1
        return {ask.name: self._answer(ask.name) for ask in asks if ask.name in self.outputs}

    def step(self, count: int = 1) -> dict[str, Answer]:
        """So many steps, or fewer if nothing is left to do. Returns what finished."""
        finished = {}
        for _ in range(count):
            if self.engine.has_unfinished_requests():
                for name in self._step():
                    if self.outputs[name].finished:
                        finished[name] = self._answer(name)
        return finished

    def _step(self) -> list[str]:
        outputs = {output.request_id: output for output in self.engine.step()}
        self.outputs.update(outputs)
        return list(outputs)

    def submit(self, ask: Ask) -> None:
        """Add a request without running it."""
        from vllm import SamplingParams, TokensPrompt

        params = SamplingParams(
            max_tokens=ask.max_tokens,
            temperature=0.0 if ask.seed is None else 1.0,
            seed=ask.seed,
            logprobs=20,
            ignore_eos=True,
            detokenize=False,
            stop_token_ids=list(ask.stop_token_ids) or None,
            extra_args=dict(ask.extra) if ask.extra else None,
        )
        if ask.chunks is not None:
            params.skip_reading_prefix_cache = True
            self.forced[ask.name] = dict(ask.chunks)
        prompt = TokensPrompt(prompt_token_ids=list(ask.tokens))
        if ask.salt:
            prompt["cache_salt"] = ask.salt
        self.outputs.pop(ask.name, None)
        self.engine.add_request(ask.name, prompt, params)

    def _answer(self, name: str) -> Answer:
        output = self.outputs[name]
        completion = output.outputs[0]
        logprobs = [
            {token: value.logprob for token, value in top.items()} for top in completion.logprobs or []
        ]
        tokens, cached = list(completion.token_ids), output.num_cached_tokens or 0
        return Answer(tokens, cached, logprobs, self.segments(name), output.finished)

    def segments(self, name: str) -> tuple[Segment, ...]:
        """How the latest request of this name was computed."""
        runs = [runs for request_id, runs in self.lineage.segments.items() if _name(request_id) == name]
        return tuple(runs[-1]) if runs else ()

    def abort(self, name: str) -> Answer | None:
        """Abort a request. Returns what had come out of it."""
        self.engine.abort_request([name])
        return self._answer(name) if name in self.outputs else None

    def settle(self) -> None:
        """Drain steps still in flight."""
        for _ in range(6):
            if self.scheduler.has_requests() or self.engine.has_unfinished_requests():
                self.engine.step()

    def reset(self, running: bool = False) -> bool:
        """vLLM's reset_prefix_cache."""
        return bool(self.engine.reset_prefix_cache(reset_running_requests=running))

    def check_idle(self) -> dict[str, Any]:
        """No request left: every block is free or held, every invariant holds. Returns the counters."""
        self.settle()
        assert not self.errors.lines, self.errors.lines
        self.scheduler.keeper.check()
        pool = self.scheduler.kv_cache_manager.block_pool
        live = [b.block_id for b in pool.blocks if b.ref_cnt and not b.is_null]
        assert not live, f"blocks still referenced at idle: {live[:10]}"
        assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
        holds = self.scheduler.keeper.cache._holds
        assert not holds and not self.scheduler.keeper.awaiting, (holds, self.scheduler.keeper.awaiting)
        return self.counters()

    def counters(self) -> dict[str, Any]:
        """The plugin's counters."""
        from flashstate.plugin.metrics import snapshot

        return {**snapshot(self.scheduler.keeper.cache), "preemptions": self.preemptions}

    def exports_in_chunk(self) -> bool:
        """Whether states inside prompts come from the kernels."""
        export = getattr(self.scheduler, "_export", None)
        return export is not None and export.in_chunk

    def positions(self) -> list[int]:
        """Positions of the cached states."""
        return sorted(unit.position for unit in self.scheduler.keeper.cache.units())

    def shift_captures(self, tokens: int) -> None:
        """From now on claim that states were taken `tokens` earlier than they were (a negative control); 0: stop."""
        from flashstate.plugin.keeper import StateKeeper

        keeper = self.scheduler.keeper
        keeper._capture = lambda request, position: StateKeeper._capture(keeper, request, position - tokens)

    def steps_per_second(self, seconds: float) -> float:
        """Decode steps of one running request (for the overhead benchmark)."""
        self.submit(Ask("load", list(range(5, 205)), max_tokens=10**6))
        for _ in range(20):
            self.engine.step()
        started, steps = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            self.engine.step()
            steps += 1
        self.abort("load")
        self.settle()
        return steps / seconds


class _Errors(logging.Handler):
    """What vLLM logs as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []
        logging.getLogger("vllm").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def set_variables() -> None:
    """What every engine's process has in its environment, from before vLLM and torch are imported."""
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="WARNING", VLLM_CPU_KVCACHE_SPACE="1"
    )
    # One compute thread: the same results everywhere, and two cores are not oversubscribed.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", str(_own_core()))


def _own_core() -> int:
    """A core that no other worker of pytest-xdist computes on, while there are enough."""
    cores = sorted(os.sched_getaffinity(0))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return cores[int(worker) % len(cores)]


def _name(request_id: str) -> str:
    # vLLM appends a random suffix to the ids it is given.
    return request_id.rsplit("-", 1)[0]


def _stand_in_for_cuda_streams() -> None:
    """The CPU platform turns async scheduling off; keep it on and give its runner no-op CUDA streams."""
    import torch
    from vllm.platforms.cpu import CpuPlatform

    stock = CpuPlatform.check_and_update_config.__func__

    def check(cls: Any, config: Any) -> None:
        stock(cls, config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(check)

    class Nothing:
        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def record(self, *args: Any) -> None: ...
        def synchronize(self) -> None: ...
        def wait(self, *args: Any) -> None: ...
        def wait_stream(self, *args: Any) -> None: ...
        def wait_event(self, *args: Any) -> None: ...

    torch.cuda.Event = torch.cuda.Stream = Nothing
    torch.cuda.current_stream = lambda *args: Nothing()
    torch.cuda.stream = lambda *args: contextlib.nullcontext()


def _serve(spec: EngineSpec, pipe: Any) -> None:
    try:
        engine: Any = Engine(spec)
        pipe.send((True, None))
        while (call := pipe.recv()) is not None:
            name, args, kwargs = call
            try:
                pipe.send((True, getattr(engine, name)(*args, **kwargs)))
            except BaseException:
                pipe.send((False, traceback.format_exc()))
    except EOFError:
        pass
    except BaseException:
        pipe.send((False, traceback.format_exc()))


class EngineProcess:
    """The test's side: any method of `Engine`, run in the child."""

    def __init__(self, spec: EngineSpec) -> None:
        pickle.dumps(spec)
        self.block_size = spec.block_size
        self.family = spec.model.name
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.plugin.preload"])
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(spec, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._receive()

    def _receive(self) -> Any:
        ok, value = self._pipe.recv()
        if not ok:
            raise AssertionError(f"in the engine process:\n{value}")
        return value

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self._pipe.send((name, args, kwargs))
        return self._receive()

    def run(self, *asks: Ask, max_steps: int | None = None) -> dict[str, Answer]:
        return self.call("run", asks, max_steps=max_steps)

    def ask(self, ask: Ask) -> Answer:
        return self.run(ask)[ask.name]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send(None)
        self._process.join(20)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@contextlib.contextmanager
def running(spec: EngineSpec) -> Iterator[EngineProcess]:
    """An engine, closed at the end."""
    engine = EngineProcess(spec)
    try:
        yield engine
    finally:
        engine.close()


def max_difference(a: Answer, b: Answer) -> float:
    """Largest |log-probability difference| over the top tokens of every step; 0.0 means equal in every bit."""
    return largest_difference(a, b, step_differences(a, b))


def largest_difference(a: Answer, b: Answer, steps: list[list[float]]) -> float:
    """`max_difference`, where the step differences are known."""
    same = a.tokens == b.tokens and len(a.logprobs) == len(b.logprobs)
    same = same and all(x.keys() == y.keys() for x, y in _steps(a, b))
    return max([0.0 if same else 1e-9, *(abs(one) for step in steps for one in step)])


def step_differences(a: Answer, b: Answer) -> list[list[float]]:
    """Differences of the top tokens of every step.

    A token that is not among the other's top counts as if it were the last of them there.
    """
    differences = []
    for x, y in _steps(a, b):
        floor_x, floor_y = min(x.values()), min(y.values())
        tokens = x.keys() | y.keys()
        differences.append([x.get(token, floor_x) - y.get(token, floor_y) for token in tokens])
    return differences


def _steps(a: Answer, b: Answer) -> Iterator[tuple[dict[int, float], dict[int, float]]]:
    """Top tokens of both, up to the step where the tokens part: what follows has another context."""
    for token_a, token_b, x, y in zip(a.tokens, b.tokens, a.logprobs, b.logprobs, strict=False):
        yield x, y
        if token_a != token_b:
            break
