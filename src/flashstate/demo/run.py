"""Runs the engines one after another before the same work."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from flashstate.bench.cores import Cores, pinned
from flashstate.bench.engine import Engine
from flashstate.bench.error import BenchError
from flashstate.bench.launch import MODEL_NAME, serve_command, serve_environment
from flashstate.bench.server import Server, free_port, running, while_alive
from flashstate.demo.comparison import Comparison
from flashstate.demo.screen import Screen
from flashstate.models.tiny import Family
from flashstate.replay.client import CompletionClient
from flashstate.replay.driver import Replay, replay
from flashstate.replay.record import Record

_TICK_S = 0.25


async def run_all(comparison: Comparison, model: Path, cores: Cores, screen: Screen) -> None:
    """Measures each engine in turn. Raises BenchError; what was measured before is then in `comparison`."""
    with pinned(cores.client):
        for engine in comparison.engines:
            await _run(comparison, engine, model, cores, screen)


async def _run(comparison: Comparison, engine: Engine, model: Path, cores: Cores, screen: Screen) -> None:
    options = comparison.options
    port = options.port or free_port()
    server = Server(
        engine.name,
        serve_command(
            engine, model, options.family, comparison.blocks, comparison.workload.most_tokens, port
        ),
        serve_environment(cores),
        port,
        options.out / "logs" / f"{engine.name}.log",
    )
    screen.starting(engine.name)
    async with running(server, cores.server) as start_s:
        screen.replaying(engine.name, _total(comparison), start_s)
        result = await while_alive(server, _replay(comparison, engine, server, screen))
    screen.finished(engine.name)
    _check_answers(engine, result)
    comparison.add(engine, result, start_s)


async def _replay(comparison: Comparison, engine: Engine, server: Server, screen: Screen) -> Replay:
    seen = 0

    def on_record(record: Record) -> None:
        nonlocal seen
        seen += 1
        screen.saw(engine.name, record)
        if comparison.options.window.measure_s is None:
            screen.at(engine.name, seen)

    window = comparison.options.window
    ticking = asyncio.create_task(_tick(engine, screen)) if window.measure_s is not None else None
    try:
        async with CompletionClient(server.url, MODEL_NAME) as client:
            return await replay(
                comparison.workload, client, token_ids(comparison.options.family), window, on_record
            )
    finally:
        if ticking is not None:
            ticking.cancel()


async def _tick(engine: Engine, screen: Screen) -> None:
    begun_s = asyncio.get_running_loop().time()
    while True:
        screen.at(engine.name, asyncio.get_running_loop().time() - begun_s)
        await asyncio.sleep(_TICK_S)


def _total(comparison: Comparison) -> float:
    """What the progress bar counts to: seconds where there is a window, else requests."""
    window = comparison.options.window
    if window.measure_s is not None:
        return window.warmup_s + window.measure_s
    return float(comparison.workload.requests or 0)


def _check_answers(engine: Engine, result: Replay) -> None:
    errors = Counter(record.error for record in result.measured)
    if not result.measured:
        raise BenchError(f"{engine.name}: no request ended in the measured time; give a longer --window")
    if None not in errors:
        most, _ = errors.most_common(1)[0]
        raise BenchError(f"{engine.name}: all {len(result.measured)} requests failed, most with: {most}")


def token_ids(family: Family) -> range:
    """The token ids that prompts are made of: all but the special ones, which come first."""
    return range(16, family.vocab_size)
