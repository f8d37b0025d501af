"""The command `flashstate size`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from flashstate.console import fail
from flashstate.models.model_file import read_model
from flashstate.models.size import Size


class KvType(StrEnum):
    """What KV is kept in."""

    AUTO = "auto"
    FP8 = "fp8"


_ITEM_BYTES: Final = {KvType.AUTO: 2, KvType.FP8: 1}


def size(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A config.json, or the folder of it.")],
    tp: Annotated[int, typer.Option(metavar="N", help="Tensor parallel GPUs.")] = 1,
    block_tokens: Annotated[
        int | None,
        typer.Option(metavar="B", help="Tokens in a block (default: the fewest that vLLM would choose)."),
    ] = None,
    kv_cache_dtype: Annotated[KvType, typer.Option(help="auto: 16-bit.")] = KvType.AUTO,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a checkpoint of a hybrid model costs: bytes, tokens of KV, blocks of vLLM's cache."""
    try:
        model = read_model(config)
        whole, gpu = (model.geometry(gpus, _ITEM_BYTES[kv_cache_dtype]) for gpus in (1, tp))
        found = Size(model.name, kv_cache_dtype.value, whole, gpu, gpu.blocks(block_tokens))
    except ValueError as error:
        fail(str(error))
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
    else:
        found.show(Console())
