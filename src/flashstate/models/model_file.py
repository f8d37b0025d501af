"""Reads a model's config.json, once for all that size models."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from flashstate.files import check_regular
from flashstate.models.config_fields import Config
from flashstate.models.geometry import Geometry, geometry
from flashstate.models.readers import ITEM_BYTES


class ConfigError(ValueError):
    """A config.json that cannot be read or sized. One line: the file, the reason."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A config.json and the model's name: the folder's, or the file's if that has a name of its own."""

    path: Path
    name: str
    config: Config

    def geometry(self, tensor_parallel: int = 1, kv_item_bytes: int = ITEM_BYTES) -> Geometry:
        """Its sizes, as `geometry` gives them. Raises ConfigError."""
        try:
            return geometry(self.config, tensor_parallel, kv_item_bytes)
        except ValueError as error:
            raise ConfigError(f"{self.path}: {error}") from None


def read_model(path: Path) -> ModelFile:
    """Reads a config.json, or that of a model's folder. Raises ConfigError."""
    file = path
    try:
        if path.is_dir():
            file = path / "config.json"
        check_regular(file)
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: {error}: not JSON") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{file}: not an object")
    name = file.parent.name if file.name == "config.json" else file.stem
    return ModelFile(file, name or "config.json", config)
