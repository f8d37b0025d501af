"""What a real engine did under pressure, replayed in the simulator from its event log: the same, to the token."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flashstate.models.tiny import FAMILIES
from flashstate.simulate.agreement import check_log
from tests.plugin.agents import Agents
from tests.plugin.conftest import SMALL_CACHE
from tests.plugin.engine import Answer, Ask, EngineProcess, EngineSpec, running
from tests.plugin.exact import Tokens

pytestmark = pytest.mark.engine

POLICIES = {"forecast": False, "rollback": True, "gds": True}
"""And whether steps are scheduled ahead."""


@dataclass(frozen=True)
class Recording:
    """An engine's log, and what its clients and its counters saw."""

    log: Path
    answers: dict[str, Answer]
    counters: dict[str, object]
    preemptions: int


@pytest.fixture(scope="module", params=["forecast", "rollback", pytest.param("gds", marks=pytest.mark.slow)])
def recording(
    request: pytest.FixtureRequest, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Recording]:
    """Agents at random (edits, forks, identical prompts, salts, aborts, resets), then more than fits at once."""
    policy: str = request.param
    log = tmp_path_factory.mktemp("log") / f"{policy}.jsonl"
    settings = {"event_log": str(log), "prefix_cache_eviction": policy, "mamba_prefill_export": True}
    arguments = {"num_gpu_blocks_override": SMALL_CACHE, "max_model_len": 2048}
    block_size = FAMILIES["gdn"].block_size
    spec = EngineSpec(models["gdn"], block_size, POLICIES[policy], settings=settings, arguments=arguments)
    with running(spec) as engine:
        agents = Agents(engine, seed=11)
        agents.run(150)
        assert set(agents.operations) >= {"go_on", "fork", "rewind", "abort", "resend"}
        answers = {ask.name: answer for ask, answer in agents.done} | crowd(engine)
        counters = engine.call("check_idle")
        yield Recording(log, answers, counters, counters["preemptions"])


def crowd(engine: EngineProcess) -> dict[str, Answer]:
    """Six conversations at once, one of them twice: some must wait, some are preempted."""
    fresh = Tokens("crowd")
    conversations = [fresh(100 + 9 * i) for i in range(6)]
    conversations[5] = list(conversations[4])
    answers: dict[str, Answer] = {}
    for turn in range(3):
        asks = [Ask(f"p{turn}x{i}", tokens, max_tokens=60) for i, tokens in enumerate(conversations)]
        done = engine.run(*asks)
        answers |= done
        conversations = [ask.tokens + done[ask.name].tokens + fresh(20) for ask in asks]
    return answers


def test_every_request_resumes_at_the_same_position(recording: Recording) -> None:
    agreement = check_log(recording.log)
    assert agreement.first is None, str(agreement.first)
    assert agreement.equal == len(agreement.starts) > 100
    assert agreement.simulator_evicted == agreement.engine_evicted
    assert len(agreement.engine_evicted) > 50
    assert recording.preemptions > 0
    assert sum(start.simulator > 0 and not start.is_given for start in agreement.starts) > 50
    (counters,) = agreement.counters
    for name, count in counters.snapshot().items():
        # Doubtful states are skipped before the core sees them.
        if name != "captures_skipped":
            assert count == recording.counters[name], name
    print(agreement.verdict(), f"{recording.preemptions} preemptions, {recording.log.stat().st_size:,} bytes")


def test_the_log_says_what_clients_saw(recording: Recording) -> None:
    starts: defaultdict[str, list[int]] = defaultdict(list)
    for start in check_log(recording.log).starts:
        # vLLM appends a random suffix to the ids it is given.
        starts[start.request.rsplit("-", 1)[0]].append(start.simulator)
    for name, answer in recording.answers.items():
        assert starts[name] == [segment.resumed for segment in answer.segments], name


@pytest.mark.parametrize("change", [{"policy": "lru"}, {"blocks": SMALL_CACHE}, {"blocks": SMALL_CACHE - 2}])
def test_another_cache_does_not_agree(
    recording: Recording, tmp_path: Path, change: dict[str, object]
) -> None:
    setup, *events = recording.log.read_text().splitlines()
    tampered = tmp_path / "tampered"
    tampered.write_text("\n".join([json.dumps(json.loads(setup) | change), *events, ""]))
    agreement = check_log(tampered)
    assert agreement.first is not None
    assert agreement.equal < len(agreement.starts)
