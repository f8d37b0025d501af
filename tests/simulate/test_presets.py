from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flashstate.core.cost import PrefillCostModel
from flashstate.models.families import FAMILIES
from flashstate.simulate.presets import GIB, GeometryError, from_config, preset, preset_names
from tests.models.make import KIMI_LINEAR, QWEN3_NEXT, write_config

MB = 1e6


def test_glm_is_as_published() -> None:
    glm = preset("glm-5.3-flash")
    assert (glm.blocks, glm.block_tokens, glm.checkpoint_blocks) == (2531, 4352, 5)
    assert glm.memory_bytes == 62.45 * GIB
    assert glm.memory_bytes / glm.blocks / MB == pytest.approx(26.49, abs=0.01)
    assert glm.kv_token_bytes == pytest.approx(6.1e3, rel=0.01)
    assert glm.checkpoint_bytes / MB == pytest.approx(73.8, abs=0.05)
    assert -(-142_000 // glm.block_tokens) == 33
    assert (glm.cost.d, glm.cost.e) == (1.862e-5, 3.33e-6)
    assert "cost" in glm.published


def test_the_others_have_blocks_of_the_published_length() -> None:
    # The lengths are published; here they come out of the config and FP8 KV.
    qwen, nemotron = preset("qwen3.8-flash-next"), preset("nemotron-3-super")
    assert (qwen.block_tokens, qwen.checkpoint_blocks) == (3136, 3)
    assert (nemotron.block_tokens, nemotron.checkpoint_blocks) == (8320, 5)
    assert round(qwen.checkpoint_bytes * 2 / 2**20) == 110
    assert round(nemotron.checkpoint_bytes * 2 / 2**20) == 162
    assert nemotron.memory_bytes == 60 * GIB
    assert "blocks" not in qwen.published and "cost" not in nemotron.published


def test_unknown_geometries_are_refused_by_name() -> None:
    with pytest.raises(
        GeometryError, match=r"geometry 'gpt': unknown; one of glm-5\.3-flash, qwen3\.8-flash-next"
    ):
        preset("gpt")


@pytest.mark.parametrize("name", preset_names())
def test_what_a_user_changes_is_no_longer_published(name: str) -> None:
    changed = preset(name).with_blocks(100).with_cost(PrefillCostModel(1.0, 0.0))
    assert changed.blocks == 100
    assert not {"blocks", "memory_bytes", "cost"} & set(changed.published)
    per_block = preset(name).memory_bytes / preset(name).blocks
    assert changed.memory_bytes == pytest.approx(100 * per_block)
    assert json.loads(json.dumps(changed.as_json()))["cost"] == {"d": 1.0, "e": 0.0}


def test_a_config_is_sized(tmp_path: Path) -> None:
    # State of a layer: 32 x 128 x 128 x 4 + 3 x 8,192 x 2 = 2,146,304 B; KV of a token: 2,048 B. 1,048, in steps of 16.
    found = from_config(write_config(tmp_path, QWEN3_NEXT), memory_gib=10.0, tp=1)
    assert found.block_tokens == 1056
    assert found.checkpoint_blocks == 3
    assert found.kv_token_bytes == 24 * 2**10
    assert found.blocks == int(10 * GIB / (1056 * 24 * 2**10))
    assert found.name == tmp_path.name
    assert found.published == ()
    halved = from_config(tmp_path, memory_gib=10.0, tp=2)
    assert (halved.block_tokens, halved.checkpoint_blocks) == (1056, 3)
    assert halved.blocks == int(10 * GIB / (1056 * 12 * 2**10))
    assert halved.checkpoint_bytes == found.checkpoint_bytes / 2


def test_every_gpu_keeps_a_latent_whole(tmp_path: Path) -> None:
    path = write_config(tmp_path, KIMI_LINEAR)
    found, halved = (from_config(path, memory_gib=10.0, tp=tp) for tp in (1, 2))
    assert found.kv_token_bytes == halved.kv_token_bytes == 7 * 576 * 2
    assert halved.checkpoint_bytes == found.checkpoint_bytes / 2


# A CPU keeps Kimi-Linear's keys and values, where a GPU keeps the latent, in blocks of a multiple of 128.
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ("lfm2", "kda")])
def test_tiny_families_get_the_blocks_vllm_gives_them(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    found = from_config(write_config(tmp_path, dict(family.config)), memory_gib=1.0, tp=1)
    assert found.checkpoint_blocks == family.checkpoint_blocks
    assert found.block_tokens <= family.block_size


@pytest.mark.parametrize(
    ("config", "memory", "tp", "reason"),
    [
        (QWEN3_NEXT, 0.0, 1, "0 GiB of memory: must be above 0"),
        (QWEN3_NEXT, float("nan"), 1, "nan GiB of memory: must be above 0"),
        (QWEN3_NEXT, 1e300, 1, r"1e\+300 GiB of memory: must be above 0, and 1e\+09 at most"),
        (QWEN3_NEXT, 0.01, 1, "0.01 GiB of memory: one block takes"),
        (QWEN3_NEXT, 1.0, 3, "tensor parallel 3: must divide the 2 KV heads"),
        (QWEN3_NEXT, 1.0, 0, "tensor parallel 0: must be 1 or more"),
        ({"model_type": "llama"}, 1.0, 1, "cannot size a model of type 'llama'"),
        ({"model_type": "qwen3_next"}, 1.0, 1, "is missing"),
        ([], 1.0, 1, "not an object"),
        (QWEN3_NEXT | {"num_hidden_layers": "many"}, 1.0, 1, "config.json: "),
        (QWEN3_NEXT | {"full_attention_interval": 1}, 1.0, 1, "0 recurrent and 48 attention layers"),
    ],
)
def test_configs_that_cannot_be_sized(
    config: object, memory: float, tp: int, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(GeometryError, match=reason) as found:
        from_config(write_config(tmp_path, config), memory, tp)
    assert "\n" not in str(found.value)
    assert str(found.value).startswith(str(tmp_path))


def test_a_broken_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(GeometryError, match=r"config\.json: Expecting property name"):
        from_config(tmp_path, 1.0, 1)
    with pytest.raises(GeometryError, match=r"missing\.json: No such file"):
        from_config(tmp_path / "missing.json", 1.0, 1)


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(GeometryError, match=r"config\.json: is not a regular file"):
        from_config(tmp_path, 1.0, 1)
