"""A server that counts as vLLM does, on a real socket; Prometheus's own client writes its page."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Counts:
    """vLLM's metrics that are watched, of two engines; FlashState's if `ours`."""

    def __init__(self, ours: bool = True) -> None:
        self.registry = CollectorRegistry()
        self.status = 200
        self._prompt = self._counter("vllm:prompt_tokens")
        self._cached = self._counter("vllm:prompt_tokens_cached")
        self._output = self._counter("vllm:generation_tokens")
        labels = ["engine"]
        self._ttft = Histogram("vllm:time_to_first_token_seconds", "", labels, registry=self.registry)
        self._running = Gauge("vllm:num_requests_running", "", labels, registry=self.registry)
        self._waiting = Gauge("vllm:num_requests_waiting", "", labels, registry=self.registry)
        self._use = Gauge("vllm:kv_cache_usage_perc", "", labels, registry=self.registry)
        self._missed = self._counter("flashstate:missed_tokens", "reason") if ours else None
        for engine in "01":
            self._running.labels(engine).set(2)
            self._waiting.labels(engine).set(1)
            self._use.labels(engine).set(0.5 if engine == "0" else 0.7)

    def serve(self, prompt: int, cached: int, output: int, ttft_s: float, capacity: int = 0) -> None:
        """Each engine answers one more request."""
        for engine in "01":
            self._prompt.labels(engine).inc(prompt)
            self._cached.labels(engine).inc(cached)
            self._output.labels(engine).inc(output)
            self._ttft.labels(engine).observe(ttft_s)
            if self._missed is not None:
                self._missed.labels(engine, "capacity").inc(capacity)

    def page(self) -> str:
        return generate_latest(self.registry).decode()

    def _counter(self, name: str, *labels: str) -> Counter:
        return Counter(name, "", ["engine", *labels], registry=self.registry)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(counts: Counts, port: int | None = None) -> Iterator[str]:
    """Its address, while it runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = counts.page().encode()
            self.send_response(counts.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        allow_reuse_address = True

    server = Server(("127.0.0.1", port or 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
