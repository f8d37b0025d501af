"""In-chunk export on CUDA: the hook in Triton's interpreter, in a process of its own, and where it is used at all."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from flashstate.plugin import seams
from flashstate.plugin.doctor import export_note
from flashstate.plugin.serve import read_options
from flashstate.plugin.settings import INSIDE, ON, Settings, SettingsError
from flashstate.plugin.support import why_no_hook, why_not_in_chunk

ROOT = Path(__file__).parents[2]


def test_in_the_interpreter() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/plugin/gdn_interpreted.py",
    ]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    passed = re.search(r"\b(\d+) passed\b", run.stdout)
    assert passed and int(passed[1]) >= 8 and "skipped" not in run.stdout


@pytest.mark.parametrize("seam", seams.CUDA_EXPORT_SEAMS, ids=lambda seam: seam.name)
def test_a_seam_reads_alike_imported_and_parsed(seam: seams.Seam) -> None:
    """In a worker's parent it is parsed: importing it would take hold of the device."""
    assert seam.problem() is None
    source = inspect.getsource(importlib.import_module(seam.module))
    assert seams.source_problem(seam, source) is None
    changed = seams.Seam(seam.module, seam.name, (*seam.parameters, "more"), seam.use)
    assert "more" in str(seams.source_problem(changed, source))


def test_asking_for_the_seams_does_not_import_the_layers() -> None:
    """Their modules ask for the device as they are imported."""
    code = (
        "import sys; from flashstate.plugin.seams import cuda_export_problem; assert cuda_export_problem() is None; "
        "print([name for name in sys.modules if 'flash_linear_attention' in name or 'mamba.gdn' in name])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip().splitlines()[-1] == "[]"


def test_a_layer_that_is_not_as_expected_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seams.cuda_export_problem() is None
    gdn = "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn"
    for module, name, problem in (
        (gdn, "ChunkGatedDeltaRule.forward_native", "should be (x)"),
        ("vllm.nowhere.at_all", "f", "vllm.nowhere.at_all cannot be read (No such file"),
    ):
        monkeypatch.setattr(seams, "CUDA_EXPORT_SEAMS", (seams.Seam(module, name, ("x",), seams.CALLED),))
        assert problem in str(seams.cuda_export_problem())


def on(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    from vllm.platforms import current_platform

    for name in ("cpu", "cuda"):
        monkeypatch.setattr(current_platform, f"is_{name}", lambda name=name: name == platform)


def make_cache(*kinds: str) -> Any:
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
    from vllm.v1.kv_cache_interface import MambaSpec

    specs = [
        MambaSpec(block_size=16, shapes=((1,),), dtypes=(), mamba_type=MambaAttentionBackendEnum[kind])
        for kind in kinds
    ]
    return SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec) for spec in specs])


def make_config(
    architecture: str = "Qwen3NextForCausalLM",
    executor: str = "mp",
    in_parts: bool = False,
    **additional: str,
) -> Any:
    return SimpleNamespace(
        model_config=SimpleNamespace(architectures=[architecture]),
        parallel_config=SimpleNamespace(distributed_executor_backend=executor, use_ubatching=in_parts),
        additional_config=additional,
    )


def test_on_cuda_it_is_used_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "cuda")
    assert "never run on hardware; --in-chunk-export on" in str(why_no_hook("auto"))
    assert why_no_hook("off") == "--in-chunk-export off"
    assert why_no_hook("on") is None
    assert why_not_in_chunk(make_cache("GDN_ATTN"), "on", make_config()) is None
    assert why_not_in_chunk(make_cache("GDN_ATTN"), "auto", make_config()) == why_no_hook("auto")


@pytest.mark.parametrize(
    ("kinds", "config", "why"),
    [
        (("GDN_ATTN", "MAMBA2"), make_config(), "layers of kind MAMBA2 have no exporter on CUDA"),
        (("GDN_ATTN",), make_config(executor="ray"), "--distributed-executor-backend ray"),
        (("GDN_ATTN",), make_config(in_parts=True), "--enable-dbo"),
        (("GDN_ATTN",), make_config("OlmoHybridForCausalLM"), "OlmoHybridForCausalLM may bring GDN layers"),
        (
            ("GDN_ATTN",),
            make_config(gdn_prefill_backend="CuteDSL"),
            "--gdn-prefill-backend cutedsl is not hooked",
        ),
    ],
)
def test_what_is_not_hooked_on_cuda_is_named(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], config: Any, why: str
) -> None:
    on(monkeypatch, "cuda")
    assert why in str(why_not_in_chunk(make_cache(*kinds), "on", config))


def test_elsewhere_chunks_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "neither")
    assert "only vLLM's CPU and CUDA kernels" in str(why_no_hook("on"))


@pytest.mark.parametrize("choice", INSIDE)
def test_on_a_cpu_it_is_on_unless_switched_off(monkeypatch: pytest.MonkeyPatch, choice: str) -> None:
    on(monkeypatch, "cpu")
    why = why_not_in_chunk(make_cache("GDN_ATTN", "MAMBA2"), choice)
    assert why == ("--in-chunk-export off" if choice == "off" else None)


@pytest.mark.parametrize(
    ("platform", "choice", "said"),
    [
        ("cpu", "auto", "come from inside the prefill chunk (--in-chunk-export auto)"),
        ("cpu", "off", "ending a prefill chunk at len(prompt) - 1: --in-chunk-export off"),
        ("cuda", "auto", "ending a prefill chunk at len(prompt) - 1: our hook"),
        ("cuda", "auto", "has never run on hardware"),
        ("cuda", "on", "come from inside the prefill chunk (--in-chunk-export on)"),
        ("cuda", "on", "has never run on hardware"),
    ],
)
def test_the_doctor_says_which_and_why(
    monkeypatch: pytest.MonkeyPatch, platform: str, choice: str, said: str
) -> None:
    on(monkeypatch, platform)
    assert said in export_note(choice)


def test_the_option_is_the_setting() -> None:
    assert read_options(["model", "--in-chunk-export", "on"]) == (
        Settings(mode=ON, in_chunk_export="on"),
        ["model"],
    )


def test_a_choice_that_is_none_is_named() -> None:
    with pytest.raises(SettingsError, match="--in-chunk-export 'perhaps': unknown; one of auto, on, off"):
        Settings(in_chunk_export="perhaps")


def test_vllm_splits_its_graphs_at_the_layer_s_core() -> None:
    """So Python, and with it our hook, runs there in every step that prefills."""
    from vllm.config import CompilationConfig
    from vllm.v1.attention.backend import AttentionCGSupport
    from vllm.v1.attention.backends.gdn_attn import GDNAttentionMetadataBuilder

    assert "vllm::qwen_gdn_attention_core" in CompilationConfig._attention_ops
    # Full graphs: batches of one query length alone, which are decodes.
    assert GDNAttentionMetadataBuilder._cudagraph_support is AttentionCGSupport.UNIFORM_BATCH
