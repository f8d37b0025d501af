"""What will be asked: every request of a play, fixed before the first one is sent.

Lengths, gaps and prefix relations are planned; only the tokens that the server generates are filled in as
they come. The same plan therefore puts the same work before every engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal["first", "extends", "edit", "fork"]
"""first: a whole new prompt. extends: the previous turn's prompt and output, and more. edit: an earlier
part of the conversation was changed or dropped. fork: a new session that branches off another's turn."""

Key = tuple[str, int]
"""(agent, turn): names a step within its play."""


@dataclass(frozen=True, slots=True)
class Step:
    """One planned request.

    It is sent `gap_s` seconds after the step `after` has ended (None: after the play's start). Its prompt
    has `prompt_tokens` tokens: the first `keep_tokens` of what the step `base` had as prompt and output,
    then new ones. `blocks` labels the new content block by block (see `Play.block_tokens`), from the prompt's
    block `first_block` on: steps of a play with the same label at the same position get the same new tokens
    there.
    """

    agent: str
    turn: int
    kind: Kind
    prompt_tokens: int
    output_tokens: int
    gap_s: float = 0.0
    after: Key | None = None
    base: Key | None = None
    keep_tokens: int = 0
    blocks: Sequence[int] = ()
    first_block: int = 0

    @property
    def key(self) -> Key:
        """This step's name within its play."""
        return self.agent, self.turn

    @property
    def total_tokens(self) -> int:
        """Prompt and output."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True)
class Play:
    """One session played through: each agent's steps in order. Agents run side by side.

    `number` is unique within a workload; with `seed` it makes the new tokens. `block_tokens`: tokens that a
    label in `Step.blocks` covers, not always a whole number; 0 where steps have no labels.
    """

    name: str
    number: int
    seed: int
    agents: tuple[tuple[Step, ...], ...]
    block_tokens: float = 0.0


class Workload(Protocol):
    """Sessions that run side by side, each playing one play after another."""

    @property
    def sessions(self) -> int:
        """How many run at a time."""

    @property
    def requests(self) -> int | None:
        """How many requests it has in all; None where it goes on for ever."""

    @property
    def most_tokens(self) -> int:
        """Prompt and output of its longest request."""

    @property
    def held_tokens(self) -> Sequence[int]:
        """What a cache has to hold: for each agent of the sessions that run at a time, its tokens at most,
        or typically where they go on for ever."""

    @property
    def description(self) -> Mapping[str, object]:
        """What it is, for the report: plain JSON values."""

    def start_s(self, session: int) -> float:
        """Seconds after the start of the run at which a session begins."""

    def plays(self, session: int) -> Iterator[Play]:
        """The plays of a session, the same at every call."""
