"""Our Kimi-Linear in a real engine: it says what its definition says, and its states resume bit for bit.

Stock vLLM cannot run this model on a CPU, so the definition, in float64, stands in for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from flashstate.models.tiny import FAMILIES, write_tiny_model
from tests.models.kimi_reference import KimiReference
from tests.plugin.engine import Answer, Ask, EngineProcess, EngineSpec, running
from tests.plugin.exact import ROUNDING, Tokens, assert_exact, compare, difference_from_replay

pytestmark = pytest.mark.engine

BLOCK = FAMILIES["kda"].block_size
LOGPROB_BOUND = {"bfloat16": 0.2, "float32": 1e-4}
"""Largest difference of a top-20 log-probability from float64 (seen: 0.07 and 1e-5; with a forgotten state: 3)."""


@dataclass(frozen=True)
class Served:
    """The tiny model in an engine."""

    folder: Path
    engine: EngineProcess
    dtype: str


@pytest.fixture(scope="module", params=["bfloat16", pytest.param("float32", marks=pytest.mark.slow)])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """bfloat16 as it is served; float32 takes another convolution, and leaves rounding no room."""
    folder = write_tiny_model("kda", tmp_path_factory.mktemp("models") / "kda")
    spec = EngineSpec(
        folder, BLOCK, settings={"mamba_prefill_export": True}, arguments={"dtype": request.param}
    )
    with running(spec) as engine:
        yield Served(folder, engine, request.param)


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Tokens:
    """Tokens that no other test uses."""
    return Tokens(request.node.nodeid)


def difference_from_definition(
    reference: KimiReference, prompt: list[int], answer: Answer, forget_at: int | None = None
) -> float:
    """Largest difference of any top-20 log-probability; the reference loses its states at `forget_at`."""
    tokens = prompt + answer.tokens[:-1]
    if forget_at is not None:
        reference.feed(tokens[:forget_at])
        reference.forget_states()
        tokens = tokens[forget_at:]
    rows = reference.feed(tokens)[-len(answer.tokens) :]
    return max(
        abs(float(row[token]) - logprob)
        for row, top in zip(rows, answer.logprobs, strict=True)
        for token, logprob in top.items()
    )


def test_log_probabilities_are_those_of_the_definition(served: Served, fresh: Tokens) -> None:
    """Over a prompt of more than a block, and the decode steps after it."""
    prompt = fresh(BLOCK + 21)
    answer = served.engine.ask(Ask("definition", prompt, max_tokens=6))
    bound = LOGPROB_BOUND[served.dtype]
    found = difference_from_definition(KimiReference(served.folder), prompt, answer)
    wrong = difference_from_definition(KimiReference(served.folder), prompt, answer, forget_at=BLOCK)
    print(f"{served.dtype}: {found:.2g} from float64, {wrong:.2g} with a forgotten state")
    assert found <= bound < wrong


def test_each_turn_of_a_conversation_resumes_at_its_end(served: Served, fresh: Tokens) -> None:
    prompt, end = fresh(BLOCK + 40), 0
    for turn, more in enumerate((3, BLOCK - 1, 2 * BLOCK + 17)):
        ask = Ask(f"turn{turn}", prompt, max_tokens=7)
        answer = served.engine.ask(ask)
        assert answer.cached == end
        assert_exact(served.engine, [ask], {ask.name: answer})
        end = len(prompt) + len(answer.tokens) - 1
        prompt = prompt + answer.tokens + fresh(more)
    served.engine.call("check_idle")


@pytest.mark.parametrize("length", [40, BLOCK + 1, BLOCK + 3, 3 * BLOCK + 77])
def test_a_prompt_s_end_comes_out_of_its_chunk(served: Served, fresh: Tokens, length: int) -> None:
    """Both where the convolution's state reaches before the chunk (BLOCK + 1, + 3) and where it does not."""
    first = Ask(f"first{length}", fresh(length), max_tokens=5)
    answer = served.engine.ask(first)
    assert_exact(served.engine, [first], {first.name: answer})
    # No chunk ended at the state.
    assert any(sum(chunk) == length and chunk[1] > 1 for chunk in answer.chunks)
    same = Ask(f"same{length}", first.tokens, max_tokens=5)
    resumed = served.engine.ask(same)
    assert resumed.cached == length - 1
    # The state that came out is that of a chunk cut there.
    cut = tuple(
        (start, min(tokens, length - 1 - start)) for start, tokens in answer.chunks if start < length - 1
    )
    assert difference_from_replay(served.engine, same, resumed, (*cut, *resumed.chunks)) == 0.0
    served.engine.call("check_idle")


def test_forks_that_run_together(served: Served, fresh: Tokens) -> None:
    """Only to rounding: vLLM's own matrix products round otherwise above four rows than below."""
    base = Ask("base", fresh(500), max_tokens=6)
    answer = served.engine.ask(base)
    start = base.tokens + answer.tokens
    forks = [Ask(f"fork{i}", start + fresh(20 + 60 * i), max_tokens=6) for i in range(4)]
    answers = served.engine.run(*forks)
    for ask in forks:
        assert answers[ask.name].cached == len(start) - 1
        for found in compare(served.engine, ask, answers[ask.name]):
            assert found.difference <= ROUNDING, found
    served.engine.call("check_idle")
