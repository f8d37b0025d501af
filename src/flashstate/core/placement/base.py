"""The contract of a placement: where checkpoints are taken."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from flashstate.core.state import JUNCTION, PROMPT_BOUNDARY, PROMPT_END


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is known of a request when it starts. Positions in tokens."""

    tokens: int
    resumed: int
    resident: int
    """The end of the longest prefix whose KV is held, with or without a checkpoint there."""
    block_tokens: int
    shared: tuple[int, ...] = ()
    """Ends of the prefixes it has in common with other prompts that wait or run now."""
    named: tuple[int, ...] = ()
    """Positions that the client asked for."""

    @property
    def last_boundary(self) -> int:
        """The last block boundary that leaves a token to compute."""
        return (self.tokens - 1) // self.block_tokens * self.block_tokens

    @property
    def junction(self) -> int:
        """The last block boundary inside the shared part."""
        return min(self.resident, self.tokens - 1) // self.block_tokens * self.block_tokens


class Spot(NamedTuple):
    """A position to take a checkpoint at, and its kind (one of CHECKPOINT_KINDS)."""

    position: int
    kind: str


class Placement(ABC):
    """Chooses the checkpoints inside a prompt, and whether a request's end is one.

    Stateless but for what `learn` tells it. Names register themselves.
    """

    name: ClassVar[str]
    registry: ClassVar[dict[str, type[Placement]]] = {}
    keeps_request_end: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            Placement.registry[cls.name] = cls

    def spots(self, prompt: Prompt) -> tuple[Spot, ...]:
        """Where to take checkpoints, ascending, each once, all in (resumed, tokens). Does not mutate."""
        found: dict[int, Spot] = {}
        for spot in self.candidates(prompt):
            if prompt.resumed < spot.position < prompt.tokens:
                found.setdefault(spot.position, spot)
        return tuple(found[position] for position in sorted(found))

    @abstractmethod
    def candidates(self, prompt: Prompt) -> Iterable[Spot]:
        """Positions worth a checkpoint, in any order; those outside what is computed are left out by `spots`."""

    def learn(self, turned_back: int | None, uncached_tokens: int) -> None:
        """A request came that turned back so many tokens before its last prompt's end (None: it did not).

        `uncached_tokens`: what it has to compute.
        """


def last_boundary(prompt: Prompt) -> Spot:
    """vLLM's: the prompt's last block boundary."""
    return Spot(prompt.last_boundary, PROMPT_BOUNDARY)


def junction(prompt: Prompt) -> Spot:
    """vLLM's: the last block boundary that the prompt shares with an earlier one."""
    return Spot(prompt.junction, JUNCTION)


def prompt_end(prompt: Prompt) -> Spot:
    """One token before the prompt's end: an identical prompt must compute its last token again."""
    return Spot(prompt.tokens - 1, PROMPT_END)
