from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from flashstate.simulate.engine_cache import EngineCache
from flashstate.simulate.presets import CacheGeometry
from flashstate.simulate.result import RunKey, RunResult
from flashstate.simulate.results_file import Results, ResultsFile, ResultsFileError
from flashstate.simulate.rules import Rules
from flashstate.simulate.schedule import Request
from flashstate.simulate.setup import Setup, differences
from flashstate.simulate.sweep import Failure, run_one, sweep
from flashstate.simulate.systems import System, systems
from tests.simulate.sessions import make_geometry, make_workload

RULES = Rules(sessions=1, duration_s=120.0, warmup_s=30.0, spread_s=10.0)


class Raising(System):
    def build(self, geometry: CacheGeometry, requests: Sequence[Request]) -> EngineCache:
        raise RuntimeError("no such luck\nsecond line")


class Dying(System):
    def build(self, geometry: CacheGeometry, requests: Sequence[Request]) -> EngineCache:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def make_setup(seed: int = 0) -> Setup:
    return Setup(make_workload(4, seed), make_geometry(30), "recorded", RULES)


def make_keys(*policies: str, loads: Sequence[int] = (1, 3), seeds: int = 2) -> list[RunKey]:
    return [RunKey(p, n, seed, "recorded", "tiny") for seed in range(seeds) for n in loads for p in policies]


def silent(running: Sequence[RunKey]) -> None:
    pass


def same(a: RunResult, b: RunResult) -> bool:
    return replace(a, wall_s=0.0) == replace(b, wall_s=0.0)


def make_result(setup: Setup, policy: str = "gds", sessions: int = 1) -> RunResult:
    return run_one(setup, systems()[policy], RunKey(policy, sessions, 0, "recorded", "tiny"))


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_run_is_done_as_if_it_were_alone(jobs: int) -> None:
    setup, keys = make_setup(), make_keys("gds", "vllm-sparse")
    most: list[int] = []
    outcomes = list(sweep(setup, systems(), keys, jobs, lambda running: most.append(len(running))))
    assert max(most) == jobs
    done = {outcome.key: outcome for outcome in outcomes}
    assert done.keys() == set(keys)
    for key, result in done.items():
        assert isinstance(result, RunResult)
        assert same(result, run_one(setup, systems()[key.policy], key))


def test_policies_are_compared_on_the_same_schedule() -> None:
    results = list(sweep(make_setup(), systems(), make_keys("gds", "asc-lru"), 2, silent))
    for result in results:
        assert isinstance(result, RunResult)
        other = next(r for r in results if r.key == replace(result.key, policy="gds"))
        assert isinstance(other, RunResult)
        assert (result.requests, result.prompt_tokens, result.ideal_tokens, result.working_set) == (
            other.requests, other.prompt_tokens, other.ideal_tokens, other.working_set
        )  # fmt: skip


def test_a_run_that_fails_is_reported_and_the_others_go_on() -> None:
    kinds = {"raising": Raising("raising", "", "asc"), "dying": Dying("dying", "", "asc")} | systems()
    keys = make_keys("raising", "gds", "dying", loads=(1,), seeds=2)
    outcomes = list(sweep(make_setup(), kinds, keys, 2, silent))
    assert {o.key for o in outcomes} == set(keys)
    failed = {o.key.policy: o.reason for o in outcomes if isinstance(o, Failure)}
    assert failed == {"raising": "RuntimeError: no such luck", "dying": "its process was killed by signal 9"}
    assert sum(isinstance(o, RunResult) for o in outcomes) == 2


def test_a_sweep_that_is_left_ends_its_processes() -> None:
    endless = replace(make_setup(), rules=replace(RULES, duration_s=1e6))
    keys = make_keys("gds", loads=(30,), seeds=4)
    before, ticks = children(), iter(range(2))

    def tick(running: Sequence[RunKey]) -> None:
        assert len(children() - before) == len(running) == 2
        if next(ticks) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(sweep(endless, systems(), keys, 2, tick))
    assert children() == before


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


# --- the file ---------------------------------------------------------------------------------------------


ABOUT = {"date": "today", "machine": "this one", "command": "simulate", "policies": {}}


def test_results_are_kept_one_by_one_and_taken_up_again(tmp_path: Path) -> None:
    setup, out = make_setup(), tmp_path / "new" / "out.json"
    first, second = make_result(setup), make_result(setup, "lean-lru")
    with ResultsFile(out, setup.as_json(), ABOUT) as file:
        file.add(first)
    assert not out.exists()
    assert len(file.partial.read_text().splitlines()) == 2
    with ResultsFile(out, setup.as_json(), ABOUT) as file:
        assert file.done == {first.key: first}
        file.add(second)
        file.finish()
    assert not file.partial.exists()
    document = json.loads(out.read_text())
    assert [RunResult.from_json(row) for row in document["results"]] == [first, second]
    assert document["setup"] == json.loads(json.dumps(setup.as_json()))
    # A third time, with more: what is done stays.
    with ResultsFile(out, setup.as_json(), ABOUT) as file:
        assert set(file.done) == {first.key, second.key}
        file.finish()
    assert json.loads(out.read_text()) == document


def test_a_line_that_broke_off_is_dropped(tmp_path: Path) -> None:
    setup, out = make_setup(), tmp_path / "out.json"
    first, second = make_result(setup), make_result(setup, "lean-lru")
    with ResultsFile(out, setup.as_json(), ABOUT) as file:
        file.add(first)
        file.add(second)
    text = file.partial.read_text()
    file.partial.write_text(text[:-20])
    with ResultsFile(out, setup.as_json(), ABOUT) as file:
        assert set(file.done) == {first.key}
        file.add(second)
    assert file.partial.read_text() == text


def test_results_of_another_setup_are_not_mixed_in(tmp_path: Path) -> None:
    setup, out = make_setup(), tmp_path / "out.json"
    with ResultsFile(out, setup.as_json(), ABOUT) as file:
        file.add(make_result(setup))
    other = replace(setup, rules=replace(RULES, gaps="corrected"), geometry=make_geometry(31))
    refused = (
        r"partial: holds 1 runs of another setup, other in geometry\.blocks, .*, rules\.gaps: name another"
    )
    with pytest.raises(ResultsFileError, match=refused), ResultsFile(out, other.as_json(), ABOUT):
        pass
    with ResultsFile(out, setup.as_json(), ABOUT) as file:
        file.finish()
    with (
        pytest.raises(ResultsFileError, match=r"out\.json: holds 1 runs"),
        ResultsFile(out, other.as_json(), ABOUT),
    ):
        pass


@pytest.mark.parametrize(
    "text", ["{}\n", "[1]\n", "nonsense\n", '{"kind": "flashstate simulate", "format": 99}\n']
)
def test_a_file_that_is_not_ours_is_left_alone(text: str, tmp_path: Path) -> None:
    for folder, name in (("a", "out.json"), ("b", "out.json.partial")):
        path = tmp_path / folder / name
        path.parent.mkdir()
        path.write_text(text)
        with (
            pytest.raises(ResultsFileError, match="not a results file of this version"),
            ResultsFile(tmp_path / folder / "out.json", make_setup().as_json(), ABOUT),
        ):
            pass
        assert [(file.name, file.read_text()) for file in path.parent.iterdir()] == [(name, text)]


def test_two_at_a_time_cannot_write(tmp_path: Path) -> None:
    setup, out = make_setup(), tmp_path / "out.json"
    with (
        ResultsFile(out, setup.as_json(), ABOUT),
        pytest.raises(ResultsFileError, match="another run is writing to it"),
        ResultsFile(out, setup.as_json(), ABOUT),
    ):
        pass


def test_results_in_memory_make_the_same_document(tmp_path: Path) -> None:
    setup = make_setup()
    with (
        Results(setup.as_json(), ABOUT) as memory,
        ResultsFile(tmp_path / "o", setup.as_json(), ABOUT) as file,
    ):
        for results in (memory, file):
            results.add(make_result(setup))
            results.finish()
    assert json.loads((tmp_path / "o").read_text())["setup"] == memory.document()["setup"]


def test_a_setup_changes_with_all_that_decides_the_figures() -> None:
    setup = make_setup()
    for changed, name in (
        (replace(setup, workload=make_workload(4, seed=1)), "traces.digest"),
        (replace(setup, geometry=make_geometry(31)), "geometry.blocks"),
        (replace(setup, rules=replace(RULES, gap_cap_s=3.0)), "rules.gap_cap_s"),
        (replace(setup, clock="engine"), "clock"),
    ):
        assert name in differences(setup.as_json(), changed.as_json())
    # Which runs are asked for is not part of it.
    assert (
        differences(setup.as_json(), replace(setup, rules=replace(RULES, sessions=9, seed=9)).as_json()) == []
    )
