from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flashstate.cli import app
from tests.models.make import GLM, KIMI_LINEAR, QWEN3_NEXT, without, write_config


def size(*arguments: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["size", *map(str, arguments)])
    return found.exit_code, found.stdout, found.stderr


def sizes(*arguments: object) -> dict[str, Any]:
    code, output, errors = size(*arguments, "--json")
    assert (code, errors) == (0, "")
    found: dict[str, Any] = json.loads(output)
    return found


def test_json_says_all_of_the_model_and_a_gpu(tmp_path: Path) -> None:
    found = sizes(write_config(tmp_path, GLM), "--tp", 2, "--block-tokens", 4352, "--kv-cache-dtype", "fp8")
    assert (found["model"], found["model_type"]) == (tmp_path.name, "glm5_next_text")
    assert found["recurrent"] == {"kind": "KDA", "layers": 34}
    assert found["attention"] == {"kind": "MLA", "layers": 11}
    whole, gpu = found["whole_model"], found["gpu"]
    assert (whole["recurrent_bytes_per_layer"], whole["convolution_bytes_per_layer"]) == (4_194_304, 147_456)
    assert (whole["checkpoint_bytes"], gpu["checkpoint_bytes"]) == (147_619_840, 73_809_920)
    assert whole["kv_bytes_per_token"] == gpu["kv_bytes_per_token"] == 5723
    assert gpu["checkpoint_worth_tokens"] == round(73_809_920 / 5723)
    assert found["blocks"] == {
        "block_tokens": 4352,
        "smallest_block_tokens": 4352,
        "block_bytes": 24_905_408,
        "checkpoint_blocks": 5,
        "checkpoint_tokens": 21_760,
    }


def test_without_options_one_gpu_has_everything_in_the_smallest_blocks(tmp_path: Path) -> None:
    write_config(tmp_path, QWEN3_NEXT)
    found = sizes(tmp_path)
    assert found["gpu"] == {"tensor_parallel": 1, **found["whole_model"]}
    assert (found["blocks"]["block_tokens"], found["blocks"]["checkpoint_blocks"]) == (1056, 3)


def test_the_table_says_it_too(tmp_path: Path) -> None:
    code, output, _ = size(write_config(tmp_path, GLM), "--tp", 2, "--block-tokens", 4352)
    text = " ".join(output.split())
    assert code == 0
    for part in (
        "34 KDA and 11 MLA layers",
        "a GPU at TP 2",
        "4,194,304 B 2,097,152 B",
        "147,456 B 73,728 B",
        "147.6 MB 73.8 MB",
        "5 blocks, one of them for auxiliary state, the room of 21,760 tokens of KV",
    ):
        assert part in text
    _, alone, _ = size(write_config(tmp_path, KIMI_LINEAR))
    assert "a GPU at" not in alone and "auxiliary" not in alone
    assert "(the fewest vLLM would choose)" in " ".join(alone.split())


@pytest.mark.parametrize(
    ("config", "options", "reason"),
    [
        (QWEN3_NEXT, ["--tp", 3], "tensor parallel 3: must divide the 2 KV heads, or be a multiple of them"),
        (QWEN3_NEXT, ["--tp", 0], "tensor parallel 0: must be 1 or more"),
        ({"model_type": "llama"}, [], "cannot size a model of type 'llama': known types are "),
        (without(QWEN3_NEXT, "head_dim"), [], "hidden_size is missing"),
        ([], [], "not an object"),
    ],
)
def test_configs_that_cannot_be_sized(
    config: object, options: list[object], reason: str, tmp_path: Path
) -> None:
    path = write_config(tmp_path, config)
    code, output, errors = size(path, *options)
    assert (code, output, errors.count("\n")) == (1, "", 1)
    assert errors.startswith(f"flashstate: {path}: {reason}")


def test_blocks_that_are_too_small(tmp_path: Path) -> None:
    code, _, errors = size(write_config(tmp_path, QWEN3_NEXT), "--block-tokens", 16)
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith("flashstate: block tokens 16: must be a multiple of 16, and 1056 or more")


def test_files_that_are_no_config(tmp_path: Path) -> None:
    missing, broken, pipe = (tmp_path / name for name in ("none.json", "broken.json", "pipe"))
    broken.write_text("{")
    os.mkfifo(pipe)
    assert size(missing) == (1, "", f"flashstate: {missing}: No such file or directory\n")
    assert size(pipe) == (1, "", f"flashstate: {pipe}: is not a regular file\n")
    code, _, errors = size(broken)
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith(f"flashstate: {broken}: ") and errors.endswith(": not JSON\n")
    assert size(tmp_path)[2] == f"flashstate: {tmp_path / 'config.json'}: No such file or directory\n"
