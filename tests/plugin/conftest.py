"""Engines that the tests of a session share: one for each family, schedule and size of cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from flashstate.models.tiny import FAMILIES, write_tiny_model
from tests.plugin.engine import EngineProcess, EngineSpec, running
from tests.plugin.exact import Tokens


def kinds(slow: tuple[str, ...] = (), families: tuple[str, ...] = ("gdn", "mamba2")) -> list[ParameterSet]:
    """Families, scheduled step by step and ahead; those named are left out unless slow tests are asked for."""
    return [
        pytest.param((family, how == "async"), id=name, marks=[pytest.mark.slow] if name in slow else [])
        for family in families
        for how in ("sync", "async")
        for name in [f"{family}-{how}"]
    ]


EXPORTING = ("gdn", "mamba2", "kda")
"""Families whose kernels export. KDA runs by our own kernel, and on CPU by our own model class."""

SMALL_CACHE = 40
"""Blocks."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {family: write_tiny_model(family, folder / family) for family in EXPORTING}


@pytest.fixture(scope="session", params=kinds())
def shared_engine(request: pytest.FixtureRequest, models: dict[str, Path]) -> Iterator[EngineProcess]:
    family, is_async = request.param
    spec = EngineSpec(models[family], FAMILIES[family].block_size, is_async)
    with running(spec) as engine:
        yield engine


@pytest.fixture
def engine(shared_engine: EngineProcess) -> Iterator[EngineProcess]:
    """An engine with a cache for everything, left clean."""
    yield shared_engine
    shared_engine.call("check_idle")


@pytest.fixture(scope="session", params=kinds(slow=("gdn-sync", "mamba2-async")))
def shared_small_engine(request: pytest.FixtureRequest, models: dict[str, Path]) -> Iterator[EngineProcess]:
    family, is_async = request.param
    arguments = {"num_gpu_blocks_override": SMALL_CACHE, "max_model_len": 2048}
    spec = EngineSpec(models[family], FAMILIES[family].block_size, is_async, arguments=arguments)
    with running(spec) as engine:
        yield engine


@pytest.fixture
def small_engine(shared_small_engine: EngineProcess) -> Iterator[EngineProcess]:
    """An engine with SMALL_CACHE blocks, emptied before and left clean."""
    assert shared_small_engine.call("reset")
    yield shared_small_engine
    shared_small_engine.call("check_idle")


@pytest.fixture
def is_async(request: pytest.FixtureRequest) -> bool:
    """Whether the test's engine schedules ahead."""
    return bool(request.node.callspec.id.endswith("-async"))


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Tokens:
    """Tokens that no other test uses."""
    return Tokens(request.node.nodeid)
