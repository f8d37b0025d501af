"""`flashstate serve` on a real model, over HTTP: what the client sees, and what /metrics says of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugin.exact import Tokens
from tests.plugin.served import Served, serving

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def served(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("served") / "server.log"
    with serving(models["gdn"], "gdn", log) as server:
        yield server
        assert " ERROR " not in server.log


def grown(after: dict[str, float], before: dict[str, float], name: str) -> float:
    return after[f"flashstate:{name}"] - before.get(f"flashstate:{name}", 0.0)


def test_metrics_agree_with_what_the_client_saw(served: Served, fresh: Tokens) -> None:
    before = served.metrics()
    prompt, resumed, asked, end = fresh(700), 0, 0, 0
    for turn in range(3):
        answer = served.complete(prompt, 9)
        assert answer.prompt_tokens == len(prompt)
        assert answer.cached == end, turn
        resumed, asked = resumed + answer.cached, asked + len(prompt)
        end = len(prompt) + len(answer.tokens) - 1
        prompt = prompt + answer.tokens + fresh(50)
    after = served.metrics_when(lambda found: grown(found, before, "captures_total|request_end") >= 3)
    assert grown(after, before, "requests_total") == 3
    assert grown(after, before, "prompt_tokens_total") == asked
    assert grown(after, before, "resumed_tokens_total") == resumed > 0
    assert grown(after, before, "ideal_tokens_total") == resumed
    assert grown(after, before, "missed_tokens_total|placement") == 0
    assert grown(after, before, "captures_total|request_end") == 3
    assert after["flashstate:resident_states"] >= 3
    # vLLM's own counts tell the same.
    cached = "vllm:prompt_tokens_cached_total"
    assert after[cached] - before.get(cached, 0.0) == resumed


def test_a_rewind_is_a_miss_with_a_reason(served: Served, fresh: Tokens) -> None:
    prompt = fresh(200)
    first = served.complete(prompt, 100)
    before = served.metrics_when(lambda found: True)
    again = served.complete(prompt + first.tokens[:60] + fresh(9), 2)
    assert again.cached == len(prompt) - 1
    after = served.metrics_when(lambda found: grown(found, before, "requests_total") >= 1)
    assert grown(after, before, "ideal_tokens_total") == 260
    assert grown(after, before, "missed_tokens_total|placement") == 61


def test_a_stop_string(served: Served, fresh: Tokens) -> None:
    prompt = fresh(400)
    free = served.complete(prompt, 12, cache_salt="free")
    stop = next(word for word in free.text.split() if len(word) == 4 and free.text.split().index(word) >= 3)
    answer = served.complete(prompt, 12, cache_salt="stop", stop=[stop])
    assert answer.text == free.text[: free.text.index(stop)]
    assert answer.tokens == free.tokens[: len(answer.tokens)]
    following = served.complete(prompt + answer.tokens + fresh(30), 3, cache_salt="stop")
    # The server sees the string when the engine may have gone on: by a token or none (then the state ends with what
    # the client has), or by more (then it holds tokens the client never saw, and the prompt's end serves).
    total = len(prompt) + len(answer.tokens)
    assert following.cached in (len(prompt) - 1, total - 1, total)


def test_a_stop_token(served: Served, fresh: Tokens) -> None:
    prompt = fresh(400)
    free = served.complete(prompt, 8, cache_salt="free")
    stop = next(token for i, token in enumerate(free.tokens) if i >= 3 and token not in free.tokens[:i])
    answer = served.complete(prompt, 8, cache_salt="stop", stop_token_ids=[stop])
    assert answer.tokens == free.tokens[: free.tokens.index(stop) + 1]
    following = served.complete(prompt + answer.tokens + fresh(30), 3, cache_salt="stop")
    assert following.cached == len(prompt) + len(answer.tokens) - 1


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"flashstate_checkpoints": "soon"}, "whole numbers"),
        ({"flashstate_checkpoints": [1.5, "a\nb"]}, "whole numbers"),
        ({"flashstate_checkpoints": 10.0}, "whole numbers"),
        ({"flashstate_checkpoints": list(range(1000))}, "at most 16"),
        ({"flashstate_session_ends": [1]}, "true or false"),
        ({"flashstate_session_ends": 2, "flashstate_checkpoints": [""]}, "true or false"),
    ],
)
def test_what_a_client_says_wrongly_is_answered_and_logged_once(
    served: Served, fresh: Tokens, said: dict[str, object], wanted: str
) -> None:
    before = len(served.log.splitlines())
    # More than one chunk, and many steps.
    assert len(served.complete(fresh(2500), 9, vllm_xargs=said).tokens) == 9
    lines = [line for line in served.log.splitlines()[before:] if "flashstate_" in line and "ignored" in line]
    assert len(lines) == 1, lines
    assert wanted in lines[0]
    assert len(lines[0]) < 500


def test_chat(served: Served) -> None:
    messages = [{"role": "user", "content": "how are you " * 40}]
    first = served.chat(messages, 11)
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "and now?"}]
    second = served.chat(messages, 5)
    assert second.prompt_tokens > first.prompt_tokens + 11
    assert min(first.tokens) >= 8, "a special token, which the text leaves out: choose another prompt"
    assert second.cached == first.prompt_tokens + 11 - 1


def test_periodic_log(served: Served, fresh: Tokens) -> None:
    served.complete(fresh(50), 2)
    for _ in range(40):
        if "flashstate resumed" in served.log:
            break
        time.sleep(0.1)
    assert "flashstate resumed" in served.log


@pytest.mark.slow  # another server; test_off.py and test_metrics.py say the same of an engine and of the logger
def test_off_serves_no_metrics_of_ours(models: dict[str, Path], tmp_path: Path, fresh: Tokens) -> None:
    with serving(models["gdn"], "gdn", tmp_path / "off.log", "--mode", "off") as server:
        prompt = fresh(400)
        first = server.complete(prompt, 5)
        second = server.complete(prompt + first.tokens + fresh(20), 5)
        # vLLM's own prefix caching, as it is: at block boundaries.
        assert second.cached == 320
        names = server.metrics()
        assert any(name.startswith("vllm:") for name in names)
        assert not [name for name in names if name.startswith("flashstate")]


def test_an_unsupported_option_is_refused_in_one_line(models: dict[str, Path]) -> None:
    command = [
        *(sys.executable, "-m", "flashstate", "serve", str(models["gdn"])),
        "--kv-offloading-size",
        "1",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode != 0
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("flashstate: ")
    assert "--kv-offloading-size 1" in last
    assert "Traceback" not in ended.stderr
