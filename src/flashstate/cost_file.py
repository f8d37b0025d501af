"""The file that `flashstate fit` writes: what prefill costs on one server. This reads what it says of D and E."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from flashstate.core.cost import PrefillCostModel
from flashstate.files import check_regular

KIND: Final = "flashstate prefill cost"
VERSION: Final = 1


class CostFileError(ValueError):
    """A file that gives no prefill cost. One line: the file, what is wrong, the way out."""


def read_prefill_cost(path: Path) -> PrefillCostModel:
    """D in s/token and E in s/(1,000 tokens)^2, as fitted. Raises CostFileError."""
    try:
        check_regular(path)
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CostFileError(f"{path}: {error.strerror or error}: write one with flashstate fit") from None
    except (ValueError, RecursionError):
        raise CostFileError(f"{path}: is not JSON: write one with flashstate fit") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise CostFileError(f"{path}: is not of kind {KIND!r}: write one with flashstate fit")
    if document.get("version") != VERSION:
        found = document.get("version")
        raise CostFileError(f"{path}: version {found!r}, not {VERSION}: write it anew with flashstate fit")
    try:
        coefficients = document["coefficients"]
        return PrefillCostModel(_number(coefficients["d"]), _number(coefficients["e"]))
    except (KeyError, TypeError, ValueError):
        raise CostFileError(
            f"{path}: coefficients d and e must be finite numbers, both 0 or more, and one above 0: "
            "write it anew with flashstate fit"
        ) from None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return float(value)
