"""The real tokens of a play: turns planned steps into prompts as the server's answers come in."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from flashstate.replay.plan import Key, Play, Step

Tokens = NDArray[np.int32]


class Transcript:
    """Remembers what was asked and answered in one play. `ids`: what new content is drawn from."""

    def __init__(self, play: Play, ids: range) -> None:
        self._play, self._ids = play, ids
        self._said: dict[Key, Tokens] = {}

    def prompt(self, step: Step) -> Tokens:
        """The step's prompt, always of the planned length, whatever became of the request it builds on."""
        said = self._said[step.base] if step.base is not None else np.empty(0, np.int32)
        kept = said[: step.keep_tokens]
        new = self._new_tokens(step, len(kept))
        if len(kept) < len(said) and len(new) and new[0] == said[len(kept)]:
            # Branches exactly here: by chance the new content began as the old one went on.
            new[0] = self._other(int(new[0]))
        return np.concatenate((kept, new))

    def finish(self, step: Step, prompt: Tokens, output: Tokens) -> None:
        """Files the tokens that the server generated for a step."""
        self._said[step.key] = np.concatenate((prompt, output))

    def _new_tokens(self, step: Step, start: int) -> Tokens:
        positions = np.arange(start, step.prompt_tokens, dtype=np.uint64)
        labels = np.full(len(positions), crc32(f"{step.agent}/{step.turn}".encode()), dtype=np.uint64)
        labels |= np.uint64(1 << 40)  # apart from every block label
        if step.blocks:
            ends = np.floor(np.arange(1, len(step.blocks) + 1) * self._play.block_tokens).astype(np.uint64)
            block = np.searchsorted(ends, positions, side="right")
            inside = block < len(step.blocks)
            labels[inside] = np.asarray(step.blocks, dtype=np.uint64)[block[inside]]
        drawn = _mix(_mix(labels ^ np.uint64(self._salt())) ^ positions)
        tokens = (drawn % np.uint64(len(self._ids))).astype(np.int32) + np.int32(self._ids.start)
        if start == 0 and step.after is None and len(tokens):
            # No two plays begin alike, so that no prefix is shared by chance.
            tokens[0] = self._ids[self._play.number % len(self._ids)]
        return tokens

    def _salt(self) -> int:
        return (self._play.seed * 0x9E3779B97F4A7C15 + self._play.number * 0xD1B54A32D192ED03) % (1 << 64)

    def _other(self, token: int) -> int:
        return self._ids[(token - self._ids.start + 1) % len(self._ids)]


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64: a good hash of each element, the same on every machine."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
