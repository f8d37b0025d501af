"""One play against one server: asks its steps and files the answers, in tokens or in text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flashstate.replay.chat_transcript import ChatTranscript
from flashstate.replay.client import CompletionClient
from flashstate.replay.ideal import ComputedPrefixes
from flashstate.replay.plan import Step
from flashstate.replay.stream import Reply
from flashstate.replay.transcript import Transcript


@dataclass(frozen=True)
class Asked:
    """What came of a step. `ideal_tokens`: see Record."""

    reply: Reply
    prompt_tokens: int
    ideal_tokens: int


class Dialogue(Protocol):
    """Holds what one play needs to go on, and nothing once it is dropped."""

    async def ask(self, step: Step) -> Asked:
        """Sends the step's request and waits for the answer. Never raises for a failed request."""


class TokenDialogue:
    """Prompts are token ids that hold the tokens the server really generated."""

    def __init__(
        self, transcript: Transcript, client: CompletionClient, cache_salt: str | None = None
    ) -> None:
        self._transcript, self._client, self._cache_salt = transcript, client, cache_salt
        # Plays share no prefix: what others computed is of no use to this one.
        self._computed = ComputedPrefixes()

    async def ask(self, step: Step) -> Asked:
        """See Dialogue."""
        prompt = self._transcript.prompt(step)
        ideal_tokens = self._computed.longest(prompt)
        reply = await self._client.complete(prompt.tolist(), step.output_tokens, self._cache_salt)
        output = np.asarray(reply.tokens, dtype=np.int32)
        if reply.error is None:
            # The last token was sampled, never consumed.
            self._computed.add(np.concatenate((prompt, output[:-1])))
        self._transcript.finish(step, prompt, output)
        return Asked(reply, step.prompt_tokens, ideal_tokens)


class ChatDialogue:
    """Prompts are messages that hold the text the server really said. What is ideal is not known: 0."""

    def __init__(
        self, transcript: ChatTranscript, client: CompletionClient, cache_salt: str | None = None
    ) -> None:
        self._transcript, self._client, self._cache_salt = transcript, client, cache_salt

    async def ask(self, step: Step) -> Asked:
        """See Dialogue."""
        reply = await self._client.chat(self._transcript.messages(step), step.output_tokens, self._cache_salt)
        self._transcript.finish(step, reply.text)
        return Asked(reply, reply.prompt_tokens or step.prompt_tokens, 0)
