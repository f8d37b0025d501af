"""How many blocks of cache the engines get."""

from __future__ import annotations

from typing import Final

from flashstate.bench.error import BenchError
from flashstate.bench.options import least_blocks
from flashstate.console import whole_number
from flashstate.models.tiny import Family
from flashstate.replay.plan import Workload

SETTINGS: Final = ("small", "large")
_SMALL_SHARE: Final = 0.85
_SMALL_SHARE_ENDLESS: Final = 0.65
"""Of the working set: meant to put stock vLLM past its cliff, with something left to choose from.

Less where work is endless: its sessions are counted at their mean length, and pause for longer.
"""


def cache_blocks(setting: str, workload: Workload, family: Family) -> int:
    """Blocks for `setting`: small, large (all of a fixed piece of work fits), or a number.

    Raises BenchError for anything else.
    """
    if setting == "small":
        least = least_blocks(workload.most_tokens, family)
        share = _SMALL_SHARE if workload.requests is not None else _SMALL_SHARE_ENDLESS
        return max(least, round(share * working_set(workload, family)))
    if setting == "large":
        return 2 * _everything(workload, family)
    blocks = whole_number(setting)
    if blocks is None:
        raise BenchError(f"--cache {setting[:40]}: choose small, large, or a number of blocks")
    return blocks


def working_set(workload: Workload, family: Family) -> int:
    """Blocks that hold every session at its typical length, with one checkpoint each."""
    return sum(_blocks(tokens, family) + family.checkpoint_blocks for tokens in workload.held_tokens)


def _everything(workload: Workload, family: Family) -> int:
    """Blocks for every session, with a checkpoint at the end of every request where their number is known."""
    requests = workload.requests if workload.requests is not None else 8 * len(workload.held_tokens)
    return working_set(workload, family) + requests * (family.checkpoint_blocks + 1)


def _blocks(tokens: int, family: Family) -> int:
    return -(-tokens // family.block_size)
