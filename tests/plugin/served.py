"""A served tiny model, as a client sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from flashstate.bench.cores import available_cores, divide
from flashstate.bench.launch import serve_environment
from flashstate.bench.server import HOST, Server, free_port
from flashstate.models.tiny import FAMILIES

NAME = "tiny"


class Served:
    """One running server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def log(self) -> str:
        return self._server.log.read_text()

    def _open(self, path: str, body: dict[str, Any] | None = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._server.url}{path}", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            text: str = response.read().decode()
        return text

    def complete(self, prompt: list[int], max_tokens: int, **given: Any) -> Completion:
        body = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "return_token_ids": True}
        return Completion(json.loads(self._open("/v1/completions", self._common | body | given)))

    def chat(self, messages: list[dict[str, str]], max_tokens: int) -> Completion:
        body = {"messages": messages, "max_tokens": max_tokens, "ignore_eos": True, "return_token_ids": True}
        return Completion(json.loads(self._open("/v1/chat/completions", self._common | body)))

    @property
    def _common(self) -> dict[str, Any]:
        return {"model": NAME, "temperature": 0}

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics; a series' labels but the engine's and the model's follow its name."""
        found = {}
        for family in text_string_to_metric_families(self._open("/metrics")):
            for sample in family.samples:
                labels = [v for k, v in sorted(sample.labels.items()) if k not in ("engine", "model_name")]
                found["|".join([sample.name, *labels])] = sample.value
        return found

    def metrics_when(self, settled: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        """The metrics once they say so (the last step's counts come after its tokens), or after a while."""
        for _ in range(50):
            found = self.metrics()
            if settled(found):
                break
            time.sleep(0.1)
        return found


class Completion:
    """What came back."""

    def __init__(self, body: dict[str, Any]) -> None:
        (choice,) = body["choices"]
        self.tokens: list[int] = choice["token_ids"]
        self.text: str = choice["text"] if "text" in choice else choice["message"]["content"]
        self.prompt_tokens: int = body["usage"]["prompt_tokens"]
        self.cached: int = (body["usage"]["prompt_tokens_details"] or {}).get("cached_tokens") or 0


@contextlib.contextmanager
def serving(model: Path, family: str, log: Path, *arguments: str) -> Iterator[Served]:
    """A server of `flashstate serve`, gone at the end."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "flashstate", "serve", str(model), *FAMILIES[family].vllm_args),
        *("--num-gpu-blocks-override", "300", "--max-model-len", "8192", "--max-num-batched-tokens", "2048"),
        *("--served-model-name", NAME, "--host", HOST, "--port", str(port), "--enable-prompt-tokens-details"),
        *arguments,
    ]
    environment = serve_environment(divide(available_cores())) | {"VLLM_LOG_STATS_INTERVAL": "1"}
    server = Server("served", command, environment, port, log)
    with asyncio.Runner() as runner:
        try:
            runner.run(server.start())
            yield Served(server)
        finally:
            runner.run(server.stop())
