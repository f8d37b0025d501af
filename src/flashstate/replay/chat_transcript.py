"""The messages of a play: planned steps as a conversation in words, with the server's own answers in it.

A chat client sends text and does not know the server's tokens. Lengths are therefore planned in words: so many
tokens a word, as the server counted them once.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flashstate.replay.client import Message
from flashstate.replay.content import content
from flashstate.replay.plan import Key, Play, Step
from flashstate.replay.transcript import bases

_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxz", "aeiou"
_WORDS: Final = tuple("".join(four) for four in itertools.product(_CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS))
_USER, _ASSISTANT = "user", "assistant"


@dataclass(frozen=True)
class _Part:
    """A message, and about how many tokens it takes."""

    role: str
    text: str
    tokens: float


class ChatTranscript:
    """Remembers the conversation of one play, as far as later steps go back to it.

    `tokens_per_word`: see `sample`. `bust`: as for Transcript.
    """

    def __init__(self, play: Play, tokens_per_word: float, bust: int | None = None) -> None:
        self._play, self._rate, self._bust = play, tokens_per_word, bust
        self._said: dict[Key, tuple[_Part, ...]] = {}
        self._wanted = bases(play)
        self._asked: dict[Key, tuple[_Part, ...]] = {}

    def messages(self, step: Step) -> list[Message]:
        """The step's messages. To be called once a step, as `Transcript.prompt`."""
        parts = self._kept(step)
        start = round(sum(part.tokens for part in parts))
        new = self._new(step, start)
        if parts and parts[-1].role == _USER:  # templates want the roles to take turns
            last = parts[-1]
            new = _Part(_USER, f"{last.text} {new.text}", last.tokens + new.tokens)
            parts = parts[:-1]
        self._asked[step.key] = parts = (*parts, new)
        return [{"role": part.role, "content": part.text} for part in parts]

    def finish(self, step: Step, text: str) -> None:
        """Files what the server said."""
        asked = self._asked.pop(step.key)
        if self._wanted[step.key]:
            self._said[step.key] = (*asked, _Part(_ASSISTANT, text, step.output_tokens))

    def _kept(self, step: Step) -> tuple[_Part, ...]:
        """What an earlier step had said, up to where this one leaves it. An answer is kept whole or not at all."""
        if step.base is None:
            return ()
        self._wanted[step.base] -= 1
        said = self._said[step.base] if self._wanted[step.base] else self._said.pop(step.base)
        kept: list[_Part] = []
        room = float(step.keep_tokens + 1)  # an answer's last token may be left off: it was never consumed
        for part in said:
            if part.tokens <= room:
                kept.append(part)
                room -= part.tokens
                continue
            words = part.text.split()[: int(room / self._rate)]
            if part.role == _USER and words:
                kept.append(replace(part, text=" ".join(words), tokens=len(words) * self._rate))
            break
        return tuple(kept)

    def _new(self, step: Step, start: int) -> _Part:
        count = max(1, round((step.prompt_tokens - start) / self._rate))
        positions = np.floor(start + np.arange(count) * self._rate).astype(np.uint64)
        picked = content(self._play, step, positions, self._bust) % np.uint64(len(_WORDS))
        return _Part(_USER, " ".join(_WORDS[i] for i in picked.tolist()), count * self._rate)


def sample(words: int) -> Sequence[Message]:
    """A message of so many words: what a server counts for it, over the words, is its tokens a word."""
    draw = random.Random(0)
    return [{"role": _USER, "content": " ".join(draw.choices(_WORDS, k=words))}]
