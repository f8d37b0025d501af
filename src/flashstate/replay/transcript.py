"""The real tokens of a play: turns planned steps into prompts as the server's answers come in."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from flashstate.replay.content import content
from flashstate.replay.plan import Key, Play, Step

Tokens = NDArray[np.int32]


class Transcript:
    """Remembers what was asked and answered in one play, as far as later steps go back to it.

    `ids`: what new content is drawn from. `bust`: sets the first tokens of the play's prompts apart from those
    of the same play with another number here.
    """

    def __init__(self, play: Play, ids: range, bust: int | None = None) -> None:
        self._play, self._ids, self._bust = play, ids, bust
        self._said: dict[Key, Tokens] = {}
        self._wanted = bases(play)

    def prompt(self, step: Step) -> Tokens:
        """The step's prompt, always of the planned length, whatever became of the request it builds on.

        To be called once a step: what no later step goes back to is forgotten.
        """
        said = self._take(step.base) if step.base is not None else np.empty(0, np.int32)
        kept = said[: step.keep_tokens]
        new = self._new_tokens(step, len(kept))
        if len(kept) < len(said) and len(new) and new[0] == said[len(kept)]:
            # Branches exactly here: by chance the new content began as the old one went on.
            new[0] = self._other(int(new[0]))
        return np.concatenate((kept, new))

    def finish(self, step: Step, prompt: Tokens, output: Tokens) -> None:
        """Files the tokens that the server generated for a step."""
        if self._wanted[step.key]:
            self._said[step.key] = np.concatenate((prompt, output))

    @property
    def held_tokens(self) -> int:
        """How many tokens are remembered now."""
        return sum(map(len, self._said.values()))

    def _take(self, key: Key) -> Tokens:
        self._wanted[key] -= 1
        return self._said[key] if self._wanted[key] else self._said.pop(key)

    def _new_tokens(self, step: Step, start: int) -> Tokens:
        positions = np.arange(start, step.prompt_tokens, dtype=np.uint64)
        drawn = content(self._play, step, positions, self._bust)
        tokens = (drawn % np.uint64(len(self._ids))).astype(np.int32) + np.int32(self._ids.start)
        if start == 0 and step.after is None and len(tokens):
            # No two plays begin alike, so that no prefix is shared by chance.
            tokens[0] = self._ids[self._play.number % len(self._ids)]
        return tokens

    def _other(self, token: int) -> int:
        return self._ids[(token - self._ids.start + 1) % len(self._ids)]


def bases(play: Play) -> Counter[Key]:
    """How many steps of a play go back to each of its steps."""
    return Counter(step.base for agent in play.agents for step in agent if step.base is not None)
