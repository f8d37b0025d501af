"""What is not supported is refused by name; a vLLM that does not fit is refused too."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from flashstate.plugin import seams
from flashstate.plugin.serve import is_missing_folder, model_refusals
from flashstate.plugin.settings import SettingsError
from flashstate.plugin.support import Features, UnsupportedError

UNSUPPORTED: list[tuple[dict[str, Any], str]] = [
    ({"pipeline_parallel_size": 2}, "--pipeline-parallel-size 2"),
    ({"speculative_config": {"method": "ngram"}}, "--speculative-config"),
    ({"kv_transfer_config": {"kv_connector": "X"}}, "--kv-transfer-config"),
    ({"kv_offloading_size": 4.0}, "--kv-offloading-size 4.0"),
    ({"decode_context_parallel_size": 2}, "--decode-context-parallel-size 2"),
    ({"prefill_context_parallel_size": 2}, "--prefill-context-parallel-size 2"),
    ({"enable_prefix_caching": False}, "--no-enable-prefix-caching"),
    ({"mamba_cache_mode": "all"}, "--mamba-cache-mode all"),
    ({"scheduler_cls": "other.Scheduler"}, "--scheduler-cls other.Scheduler"),
]


@pytest.mark.parametrize(("given", "named"), UNSUPPORTED)
def test_each_unsupported_feature_is_refused_by_name(given: dict[str, Any], named: str) -> None:
    (reason,) = Features.of_arguments(Namespace(model="m", **given)).refusals()
    assert reason.startswith(f"{named}: ")


def test_all_of_them_at_once_are_all_named_with_a_way_out() -> None:
    together = {name: value for given, _ in UNSUPPORTED for name, value in given.items()}
    reasons = Features.of_arguments(Namespace(**together)).refusals()
    assert len(reasons) == len(UNSUPPORTED)
    message = str(UnsupportedError(reasons))
    assert all(named in message for _, named in UNSUPPORTED)
    assert "--mode off" in message
    assert "\n" not in message


@pytest.mark.parametrize("model", ["/no/such/model", "./model", "models/of/mine", "~/model"])
def test_a_folder_that_is_not_there_is_refused_before_the_hub_is_asked(model: str) -> None:
    with pytest.raises(SettingsError) as error:
        model_refusals(Namespace(model_tag=model))
    assert str(error.value).startswith(f"model {model!r}: no such folder: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "model", ["org/name", "name", "s3://bucket/of/models", "org/name/part.gguf", str(Path(__file__).parent)]
)
def test_what_may_be_elsewhere_is_not_called_missing(model: str) -> None:
    assert not is_missing_folder(model)


def test_what_is_left_alone_is_not_refused() -> None:
    given = {"enable_prefix_caching": None, "mamba_cache_mode": "align", "tensor_parallel_size": 2}
    assert Features.of_arguments(Namespace(**given)).refusals() == []


def test_every_refused_option_is_one_that_vllm_has() -> None:
    from vllm.engine.arg_utils import EngineArgs

    missing = set(Features.__dataclass_fields__) - set(EngineArgs.__dataclass_fields__)
    assert not missing


def test_the_installed_vllm_fits() -> None:
    assert seams.seam_problems() == []
    seams.check_seams()


def test_another_signature_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    def changed(self: object, request: object, why: str) -> None: ...

    monkeypatch.setattr(Scheduler, "_free_request_blocks", changed)
    with pytest.raises(seams.SeamError, match=r"Scheduler\._free_request_blocks\(request, why\)") as error:
        seams.check_seams()
    assert "\n" not in str(error.value)


def test_a_missing_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.block_pool import BlockPool

    monkeypatch.delattr(BlockPool, "get_cached_block")
    with pytest.raises(seams.SeamError, match=r"BlockPool\.get_cached_block is missing"):
        seams.check_seams()


def test_the_parameter_that_came_with_033_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    def newer(self: object, request: object, max_cache_hit_length: int | None = None) -> None: ...

    monkeypatch.setattr(Scheduler, "_get_local_prefix_cache_hit", newer)
    assert seams.seam_problems() == []


@pytest.mark.parametrize("version", ["0.31.9", "0.34.0", "0.320.1"])
def test_an_unknown_version_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(seams, "vllm_version", lambda: version)
    with pytest.raises(seams.SeamError, match=version):
        seams.check_seams()


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0", "0.33.1+cpu"])
def test_known_versions_are_accepted(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(seams, "vllm_version", lambda: version)
    assert seams.seam_problems() == []


def test_the_kernels_that_states_are_exported_from_are_as_expected() -> None:
    assert seams.export_problem() is None


@pytest.mark.parametrize("seam", [*seams.SEAMS, *seams.EXPORT_SEAMS], ids=lambda seam: seam.name)
def test_a_seam_reads_alike_imported_and_parsed(seam: seams.Seam) -> None:
    """`doctor --wheel` parses what it cannot import."""
    import importlib
    import inspect

    source = inspect.getsource(importlib.import_module(seam.module))
    assert seams.source_problem(seam, source) is None
    changed = seams.Seam(seam.module, seam.name, (*seam.parameters, "more"), seam.use, seam.optional)
    assert "more" in str(seams.source_problem(changed, source))


def test_a_worker_that_is_not_as_expected_leaves_chunk_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlashState is not refused for it: it ends chunks where it wants a state."""
    from flashstate.plugin.support import why_not_in_chunk

    other = seams.Seam("vllm._custom_ops", "chunk_gated_delta_rule_cpu", ("x",), "replaced")
    monkeypatch.setattr(seams, "EXPORT_SEAMS", (other,))
    assert seams.seam_problems() == []

    class Nothing:
        kv_cache_groups = ()

    assert "should be (x)" in str(why_not_in_chunk(Nothing()))  # type: ignore[arg-type]
