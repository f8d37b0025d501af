"""What the demo decides by itself: cores, cache, figures for people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flashstate.bench.cores import Cores, divide
from flashstate.bench.engine import engines
from flashstate.bench.error import BenchError
from flashstate.bench.launch import serve_command, serve_environment
from flashstate.demo.cache import cache_blocks, working_set
from flashstate.demo.options import Options
from flashstate.demo.summary import summarise
from flashstate.replay.record import Record
from flashstate.replay.synthetic import Shape, SyntheticWorkload

OPTIONS = Options(Path("out"))


@pytest.mark.parametrize(
    ("available", "cores"),
    [
        ({0}, Cores(0, frozenset({0}), frozenset({0}))),
        ({0, 1}, Cores(0, frozenset({0}), frozenset({1}))),
        ({2, 5, 7}, Cores(2, frozenset({2, 5}), frozenset({7}))),
    ],
)
def test_cores(available: set[int], cores: Cores) -> None:
    assert divide(frozenset(available)) == cores


def test_the_small_cache_is_less_than_the_work_and_the_large_one_far_more() -> None:
    family = OPTIONS.family
    for seed in range(5):
        workload = SyntheticWorkload(Shape(), seed)
        held = working_set(workload, family)
        assert cache_blocks("small", workload, family) < held
        everything = held + workload.requests * family.checkpoint_blocks
        assert cache_blocks("large", workload, family) > everything
        assert cache_blocks("777", workload, family) == 777


def test_one_session_still_fits_the_small_cache() -> None:
    workload = SyntheticWorkload(Shape(sessions=1), 1)
    blocks = cache_blocks("small", workload, OPTIONS.family)
    assert blocks * OPTIONS.family.block_size > workload.most_tokens
    OPTIONS.bench(blocks).check_length(workload.most_tokens)
    with pytest.raises(BenchError, match=r"needs \d+ blocks"):
        OPTIONS.bench(5).check_length(workload.most_tokens)


def test_engines_differ_only_in_their_own_settings() -> None:
    commands = []
    for engine in engines(full=True):
        command = serve_command(engine, Path("model"), OPTIONS.family, 400, 9000, 8123)
        assert command[command.index("--mode") + 1] == engine.mode
        at = command.index("--mode")
        rest = command[:at] + command[at + 2 :]
        commands.append([word for word in rest if word not in engine.arguments])
    assert all(command == commands[0] for command in commands)
    assert engines(full=False) == (engines(full=True)[0], engines(full=True)[1], engines(full=True)[-1])


def test_the_server_computes_on_one_thread() -> None:
    environment = serve_environment(divide(frozenset({3, 4})))
    assert (environment["VLLM_CPU_OMP_THREADS_BIND"], environment["OMP_NUM_THREADS"]) == ("3", "1")


def record(**changes: object) -> Record:
    base = Record("s", 0, "extends", 100, 60, 80, 10, 0.5, 1.0, 0.0, 1.0)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_figures_are_of_answered_requests() -> None:
    records = (
        record(),
        record(cached_tokens=90, ttft_s=1.5, e2e_s=2.0, end_s=29.0),
        record(error="http 500: x", cached_tokens=0, end_s=5.0),
    )
    result = summarise(records, 30.0, {"placement": 1, "capacity": 2, "dependency": 3})
    assert (result.prompt_tokens, result.resumed_tokens, result.ideal_tokens) == (200, 150, 160)
    assert result.hit_rate == 0.75
    assert result.recomputed_tokens == 20  # never made up for by a request that found more
    assert result.ttft_s.p50 == pytest.approx(1.0)
    assert result.prompt_tokens_per_min == pytest.approx(400)
    assert result.output_tokens_per_min == pytest.approx(40)
    assert result.misses_tokens == {"placement": 1, "capacity": 2, "dependency": 3}


def test_a_run_without_an_answer_has_no_figures_to_divide() -> None:
    result = summarise((), 0.0, None)
    assert (result.hit_rate, result.ttft_s.p50, result.computed_over_ideal) == (None, None, None)
    assert result.misses_tokens == {"placement": None, "capacity": None, "dependency": None}
