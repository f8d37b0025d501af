"""Writes a tiny model of a family into a folder that vLLM can serve: about 10 MB, in well under a second."""

from __future__ import annotations

import json
from pathlib import Path

from flashstate.models.families import FAMILIES, Family
from flashstate.models.tokenizer import write_tokenizer
from flashstate.models.weights import write_weights

__all__ = ["FAMILIES", "Family", "write_tiny_model"]


def write_tiny_model(family: str, folder: Path) -> Path:
    """Writes config.json, random weights and a tokenizer into `folder`, made if missing; returns it.

    Overwrites what is there; the same family gives the same files everywhere. Raises ValueError for an unknown
    family.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown model family {family!r}: choose one of {', '.join(FAMILIES)}")
    config = FAMILIES[family].config
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(config, folder / "model.safetensors")
    write_tokenizer(folder)
    _write_json(folder / "generation_config.json", {"eos_token_id": config["eos_token_id"]})
    _write_json(folder / "config.json", dict(config))
    return folder


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")
