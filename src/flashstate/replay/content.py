"""What new content is made of: a number for every position of a prompt, the same on every machine."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from flashstate.replay.plan import Play, Step

Numbers = NDArray[np.uint64]

BUST_TOKENS = 16
"""A prompt that starts with so many tokens of its own shares nothing: a block's name covers all before it."""


def content(play: Play, step: Step, positions: Numbers, bust: int | None = None) -> Numbers:
    """A number for each of the positions (tokens from the prompt's start, in order), to pick a token or a word by.

    Steps of a play with the same block label at the same position get the same numbers there; other steps and
    other plays get others. `bust` changes the first BUST_TOKENS positions of all prompts of the play alike.
    """
    labels = np.full(len(positions), crc32(f"{step.agent}/{step.turn}".encode()), dtype=np.uint64)
    labels |= np.uint64(1 << 40)  # apart from every block label
    if step.blocks:
        first, last = step.first_block + 1, step.first_block + len(step.blocks) + 1
        ends = np.floor(np.arange(first, last) * play.block_tokens).astype(np.uint64)
        block = np.searchsorted(ends, positions, side="right")
        inside = block < len(step.blocks)
        labels[inside] = np.asarray(step.blocks, dtype=np.uint64)[block[inside]]
    labels ^= np.uint64(_salt(play))
    if bust is not None:
        labels[positions < BUST_TOKENS] ^= np.uint64(bust)
    return _mix(_mix(labels) ^ positions)


def _salt(play: Play) -> int:
    return (play.seed * 0x9E3779B97F4A7C15 + play.number * 0xD1B54A32D192ED03) % (1 << 64)


def _mix(x: Numbers) -> Numbers:
    """splitmix64: a good hash of each element."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
