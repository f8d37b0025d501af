"""vLLM imported once, in the process that the engines of a test run fork from: importing it takes ten seconds.

Only imported: no plugin is loaded, nothing is computed (a forked child could not use torch's threads), and no engine's
own variable is read.
"""

from __future__ import annotations

import threading
from importlib import import_module

from tests.plugin.engine import set_variables

set_variables()
for module in ("vllm.entrypoints.llm", "vllm.v1.engine.core", "vllm.v1.worker.cpu_worker"):
    import_module(module)

assert not import_module("vllm.plugins").plugins_loaded
assert threading.active_count() == 1, threading.enumerate()
