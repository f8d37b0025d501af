"""Lists of block ids."""

from __future__ import annotations

from array import array

import numpy as np


def common_blocks(a: array[int], b: array[int]) -> int:
    """How many leading ids are the same."""
    length = min(len(a), len(b))
    differs = np.frombuffer(a, np.int64)[:length] != np.frombuffer(b, np.int64)[:length]
    return int(differs.argmax()) if differs.any() else length
