"""Agents at random: conversations that start, continue, fork, rewind, abort and resend, several at once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

from tests.plugin.engine import Answer, Ask, EngineProcess

LONGEST = 480
"""Tokens of a conversation before it is dropped: three of them, running, nearly fill a cache of 40 blocks."""


@dataclass
class Conversation:
    """What one agent holds, and its request if one runs."""

    tokens: list[int]
    turns: list[int] = field(default_factory=list)
    """Lengths at which its turns ended."""
    salt: str | None = None
    running: Ask | None = None


class Agents:
    """Drives one engine; everything follows from the seed and the engine's answers."""

    def __init__(self, engine: EngineProcess, seed: int) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.conversations: list[Conversation] = []
        self.done: list[tuple[Ask, Answer]] = []
        self.operations: Counter[str] = Counter()
        self._shared = self._fresh(230)
        self._serials = count(1)

    def run(self, operations: int) -> None:
        """So many operations, a few steps apart, and then everything to its end."""
        kinds = [self.start, self.go_on, self.fork, self.rewind, self.abort, self.resend, self.reset]
        while self.operations.total() < operations:
            (kind,) = self.random.choices(kinds, [2, 8, 3, 3, 2, 2, 0.3])
            if kind():
                self.operations[kind.__name__] += 1
                self.step(self.random.choice([0, 1, 2, 5, 15]))
        while any(conversation.running for conversation in self.conversations):
            self.step(50)

    @property
    def resumed(self) -> list[tuple[Ask, Answer]]:
        """Requests that started, or started again, from a cached state."""
        return [(ask, answer) for ask, answer in self.done if any(s.resumed for s in answer.segments)]

    def step(self, steps: int) -> None:
        for name, answer in self.engine.call("step", steps).items():
            self._ended(name, answer)

    def start(self) -> bool:
        if not self._has_room():
            return False
        shared = self._shared if self.random.random() < 0.5 else []
        salt = self.random.choice([None, None, "tenant"])
        conversation = Conversation(shared + self._fresh(self.random.choice([3, 40, 200])), salt=salt)
        self.conversations.append(conversation)
        return self._ask(conversation)

    def go_on(self) -> bool:
        conversation = self._idle()
        if conversation is None:
            return False
        conversation.tokens += self._fresh(self.random.randint(1, 70))
        return self._ask(conversation)

    def fork(self) -> bool:
        conversation = self._idle()
        if conversation is None or not self._has_room(conversation):
            return False
        twin = Conversation(list(conversation.tokens), list(conversation.turns), conversation.salt)
        self.conversations.append(twin)
        for one in (conversation, twin):
            one.tokens += self._fresh(self.random.randint(1, 30))
            self._ask(one)
        return True

    def rewind(self) -> bool:
        conversation = self._idle()
        if conversation is None or not conversation.turns:
            return False
        turn = self.random.choice(conversation.turns)
        length = self.random.choice([turn, max(turn - self.random.randint(0, 200), 2)])
        conversation.tokens = conversation.tokens[:length] + self._fresh(self.random.randint(1, 40))
        conversation.turns = [end for end in conversation.turns if end <= length]
        return self._ask(conversation)

    def abort(self) -> bool:
        running = [conversation for conversation in self.conversations if conversation.running]
        if not running:
            return False
        conversation = self.random.choice(running)
        assert conversation.running is not None
        name = conversation.running.name
        self._ended(name, self.engine.call("abort", name))
        return True

    def resend(self) -> bool:
        if not self.done or not self._has_room():
            return False
        ask, _ = self.random.choice(self.done[-6:])
        self.conversations.append(Conversation(list(ask.tokens), salt=ask.salt))
        return self._ask(self.conversations[-1])

    def reset(self) -> bool:
        return bool(self.engine.call("reset", running=True))

    def _has_room(self, kept: Conversation | None = None) -> bool:
        """Whether another conversation may begin; drops an idle one if there are many."""
        if len(self.conversations) < 5:
            return True
        idle = [one for one in self.conversations if not one.running and one is not kept]
        if idle:
            self.conversations.remove(self.random.choice(idle))
        return bool(idle)

    def _idle(self) -> Conversation | None:
        idle = [conversation for conversation in self.conversations if not conversation.running]
        return self.random.choice(idle) if idle else None

    def _ask(self, conversation: Conversation) -> bool:
        name = f"agents{next(self._serials)}"
        ask = Ask(name, list(conversation.tokens), self.random.choice([1, 3, 6, 20]), salt=conversation.salt)
        self.engine.call("submit", ask)
        conversation.running = ask
        return True

    def _ended(self, name: str, answer: Answer | None) -> None:
        (conversation,) = [c for c in self.conversations if c.running and c.running.name == name]
        assert conversation.running is not None
        if answer is not None:
            self.done.append((conversation.running, answer))
            conversation.tokens += answer.tokens
            conversation.turns.append(len(conversation.tokens))
        conversation.running = None
        if len(conversation.tokens) > LONGEST:
            self.conversations.remove(conversation)

    def _fresh(self, tokens: int) -> list[int]:
        return [self.random.randrange(8, 2000) for _ in range(tokens)]
