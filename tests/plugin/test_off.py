"""With the plugin installed and FLASHSTATE off, vLLM answers what it answers without the plugin, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashstate.models.tiny import FAMILIES
from tests.plugin.engine import Answer, Ask, EngineProcess, EngineSpec, max_difference, running
from tests.plugin.exact import Tokens

pytestmark = pytest.mark.engine


def conversation(engine: EngineProcess) -> list[Answer]:
    """Turns that reuse, and two prompts at once."""
    fresh, answers = Tokens("off"), []
    prompt = fresh(700)
    for turn in range(3):
        answers.append(engine.ask(Ask(f"turn{turn}", prompt, max_tokens=10)))
        prompt = prompt + answers[-1].tokens + fresh(200)
    pair = [Ask(f"pair{i}", prompt + fresh(150), max_tokens=6) for i in range(2)]
    return [*answers, *engine.run(*pair).values()]


def test_off_is_stock(models: dict[str, Path]) -> None:
    family = FAMILIES["gdn"]
    answers = []
    for environment in ({}, {"VLLM_PLUGINS": ""}):
        spec = EngineSpec(models["gdn"], family.block_size, mode="off", environment=environment)
        with running(spec) as engine:
            answers.append(conversation(engine))
    off, stock = answers
    assert [answer.cached for answer in off] == [answer.cached for answer in stock]
    assert off[1].cached == 640
    assert [max_difference(a, b) for a, b in zip(off, stock, strict=True)] == [0.0] * len(stock)
    assert [answer.history for answer in off] == [answer.history for answer in stock]
