"""Agents at random where states are exported inside prefill chunks: no wrong state, no lost block, no endless wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flashstate.models.tiny import FAMILIES
from flashstate.simulate.agreement import check_log
from tests.plugin.agents import Agents, Conversation
from tests.plugin.conftest import EXPORTING, SMALL_CACHE, kinds
from tests.plugin.engine import Answer, Ask, EngineProcess, EngineSpec, running
from tests.plugin.exact import BATCHED, Tokens, compare

pytestmark = pytest.mark.engine

BLOCK = 160
PATIENCE = 40
"""Times 50 steps, in which whatever was asked has been answered many times over."""


class ExportAgents(Agents):
    """Also: siblings that come together, crowds, sessions that end, and positions that clients name."""

    def run(self, operations: int) -> None:
        chosen = [self.start, self.go_on, self.fork, self.rewind, self.abort, self.resend, self.reset]
        chosen += [self.siblings, self.crowd]
        while self.operations.total() < operations:
            (one,) = self.random.choices(chosen, [1, 9, 2, 4, 2, 2, 0.3, 2, 0.4])
            if one():
                self.operations[one.__name__] += 1
                self.step(self.random.choice([0, 0, 1, 1, 2, 5, 15]))
        for _ in range(PATIENCE):
            self.step(50)
        assert [one.running for one in self.conversations if one.running] == [], "waits for ever"

    def siblings(self) -> bool:
        """Prompts that part after a common prefix, sent at once."""
        if not self._has_room():
            return False
        idle = self._idle()
        shared = list(idle.tokens) if idle and self.random.random() < 0.3 else []
        shared += self._fresh(self.random.choice([1, 63, 64, 65, 159, 160, 161, 290]))
        for _ in range(self.random.choice([2, 3])):
            tail = self._fresh(self.random.choice([0, 1, 2, 30, 150]))
            self.conversations.append(Conversation([*shared, *tail]))
            self._ask(self.conversations[-1])
        return True

    def crowd(self) -> bool:
        """More than fits."""
        if not self._has_room():
            return False
        for _ in range(4):
            self.conversations.append(Conversation(self._fresh(self.random.randint(200, 400))))
            self._ask(self.conversations[-1], max_tokens=60)
        return True

    def _ask(self, conversation: Conversation, max_tokens: int | None = None) -> bool:
        name = f"agents{next(self._serials)}"
        said = self._said(len(conversation.tokens))
        tokens = max_tokens or self.random.choice([1, 3, 6, 20])
        ask = Ask(name, list(conversation.tokens), tokens, salt=conversation.salt, extra=said)
        self.engine.call("submit", ask)
        conversation.running = ask
        return True

    def _said(self, tokens: int) -> Mapping[str, Any]:
        """What the client says beside a prompt of so many tokens, sensible or not."""
        said: dict[str, Any] = {}
        if self.random.random() < 0.4:
            position = self.random.randint(1, tokens)
            block = position // BLOCK * BLOCK
            sensible = [position, block, [position, position // 2], [tokens - 1], list(range(99))]
            said["flashstate_checkpoints"] = self.random.choice(
                [*sensible, [0, 1, tokens, -1, 10**9], "soon"]
            )
        if self.random.random() < 0.15:
            said["flashstate_session_ends"] = self.random.choice([True, True, "true", 1, "no"])
        return said

    def _ended(self, name: str, answer: Answer | None) -> None:
        (conversation,) = [c for c in self.conversations if c.running and c.running.name == name]
        assert conversation.running is not None
        said = conversation.running.extra or {}
        super()._ended(name, answer)
        # Half the sessions that were to end go on all the same.
        if said.get("flashstate_session_ends") and self.random.random() < 0.5:
            self.conversations = [one for one in self.conversations if one is not conversation]


@pytest.mark.parametrize("operations", [60, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("kind", "tokens_a_step"),
    [
        pytest.param(kind.values[0], tokens, id=f"{kind.id}-{tokens}", marks=kind.marks)
        for kind, tokens in zip(
            kinds(("gdn-sync", "mamba2-async", "kda-sync"), EXPORTING),
            [2048, 200, 200, 100, 100, 2048],
            strict=True,
        )
    ],
)
def test_agents_at_random(
    models: dict[str, Path], tmp_path: Path, kind: tuple[str, bool], tokens_a_step: int, operations: int
) -> None:
    family, is_async = kind
    log = tmp_path / "events.jsonl"
    settings = {"mamba_prefill_export": True, "event_log": str(log)}
    sizes = {"num_gpu_blocks_override": SMALL_CACHE, "max_model_len": 2048}
    # In half of them vLLM files whatever stands at a boundary: it must be the boundary's.
    interval = None if is_async else 0
    limits = {"max_num_batched_tokens": tokens_a_step, "prefix_cache_retention_interval": interval}
    arguments: dict[str, object] = {**sizes, **limits}
    spec = EngineSpec(
        models[family], FAMILIES[family].block_size, is_async, settings=settings, arguments=arguments
    )
    with running(spec) as engine:
        assert engine.call("exports_in_chunk")
        agents = ExportAgents(engine, seed=5)
        agents.run(operations)
        counters = engine.call("check_idle")
        agreement = check_log(log)
        assert agreement.first is None, str(agreement.first)
        assert all(counters["captures"][export] > 0 for export in ("prompt_end", "junction", "named"))
        assert len(agents.resumed) > operations // 7
        assert engine.call("reset")
        found = [found for ask, answer in agents.resumed for found in compare(engine, ask, answer)]
        engine.call("check_idle")
    # Crowds decode beside one another, which rounds otherwise than the replay alone: see BATCHED.
    long = [one for one in found if len(one.steps) >= 5]
    assert [one for one in long if one.is_moved] == []
    assert sum(one.difference == 0.0 for one in found) > len(found) // 3
    print(f"{dict(agents.operations)}; {len(found)} segments compared; {agreement.verdict()}; {counters}")


@pytest.fixture(
    scope="module", params=["auto", pytest.param("off", marks=pytest.mark.slow)], ids=["inside", "cut"]
)
def tight(request: pytest.FixtureRequest, models: dict[str, Path]) -> Iterator[EngineProcess]:
    """An engine whose cache just holds its longest prompt."""
    settings = {"mamba_prefill_export": True, "in_chunk_export": request.param}
    arguments = {"num_gpu_blocks_override": 22, "max_model_len": 11 * BLOCK}
    spec = EngineSpec(models["gdn"], FAMILIES["gdn"].block_size, settings=settings, arguments=arguments)
    with running(spec) as engine:
        yield engine


@pytest.mark.parametrize("tokens", [1, 2, BLOCK - 1, BLOCK + 1, 7 * BLOCK, 10 * BLOCK + 1, 11 * BLOCK - 5])
def test_a_cache_without_room_for_exports_serves_every_prompt(
    tight: EngineProcess, fresh: Tokens, tokens: int
) -> None:
    """Alone, again, and three at once that share half: all end, rightly."""
    first = Ask(f"first{tokens}", fresh(tokens), max_tokens=4)
    again = Ask(f"again{tokens}", first.tokens, max_tokens=4, extra={"flashstate_checkpoints": [BLOCK, 5]})
    half = first.tokens[: tokens // 2]
    siblings = [Ask(f"sibling{tokens}-{i}", half + fresh(tokens - len(half)), max_tokens=4) for i in range(3)]
    for asks in ([first], [again], siblings):
        answers = tight.run(*asks, max_steps=200)
        for ask in asks:
            assert answers[ask.name].finished
            for found in compare(tight, ask, answers[ask.name]):
                assert found.is_rounding and found.typical <= BATCHED, found
        tight.call("check_idle")


def test_a_request_is_not_preempted_for_a_copy_of_its_own_state(tight: EngineProcess, fresh: Tokens) -> None:
    """It reads nothing from the cache, as with prompt logprobs: it would begin again, copy again, and so on."""
    chunks = ((0, 6 * BLOCK), (6 * BLOCK, BLOCK))
    named = {"flashstate_checkpoints": [6 * BLOCK]}
    ask = Ask("cold", fresh(7 * BLOCK), max_tokens=4, chunks=chunks, extra=named)
    before = tight.call("counters")["preemptions"]
    assert tight.run(ask, max_steps=60)["cold"].finished
    assert tight.call("counters")["preemptions"] == before
    tight.call("check_idle")


@pytest.mark.parametrize("before", [50, 200, 350, 500])
def test_a_state_at_a_chunk_s_end_and_one_inside_the_next_keep_blocks_of_their_own(
    tight: EngineProcess, fresh: Tokens, before: int
) -> None:
    """The first is copied while the step is scheduled that exports the second; few other blocks are to be had."""
    if not tight.call("exports_in_chunk"):
        pytest.skip("only inside a chunk can a named position be had")
    named = {"flashstate_checkpoints": [79]}
    for position in (79, 158):
        for i in range(3):
            tight.ask(Ask(f"fills{before}-{position}-{i}", fresh(before), max_tokens=2))
        name = f"{before}-{position}"
        first = Ask(f"two{name}", fresh(159), max_tokens=1, chunks=((0, 79), (79, 80)), extra=named)
        assert tight.ask(first).chunks == first.chunks
        following = Ask(f"from{name}", first.tokens[:position] + fresh(50), max_tokens=6)
        answer = tight.ask(following)
        assert answer.cached == position
        (found,) = compare(tight, following, answer)
        assert found.segment.is_exact
        assert found.difference == 0.0
    tight.call("check_idle")
