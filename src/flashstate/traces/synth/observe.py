"""What the fit needs to know of each recorded turn, seen against the turn before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flashstate.traces.lineage import Kept, lineage
from flashstate.traces.session import Agent, Session, Turn
from flashstate.traces.synth.names import WINDOW_TOKENS, Edit

_DEEP_BLOCKS = 256
"""A prompt that changes more than this, or more than half of the previous one, goes back to near its beginning."""
_FEW_BLOCKS = 4
_SHORTER = 0.9
"""Below this part of the previous prompt, a prompt that goes back is a compaction."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One turn of an agent. `before` is the previous one; None for the first, where `edit` and after say nothing."""

    agent: tuple[int, int]
    """Number of the session and of the agent in it (0 is the main agent)."""
    number: int
    turns: int
    is_long: bool
    first_prompt: int
    turn: Turn
    before: Turn | None = None
    edit: Edit = Edit.EXTENDS
    after_shrink: bool = False
    could_return: bool = False
    """Whether it goes back, and an earlier turn of the agent already did."""
    returned_blocks: int = 0
    """Blocks that some earlier turn of the agent shares beyond what the previous one does."""

    @property
    def is_last(self) -> bool:
        """Whether the agent's session ends with it."""
        return self.number == self.turns - 1

    @property
    def previous(self) -> Turn:
        """The turn before, of a later turn."""
        if self.before is None:
            raise ValueError("an agent's first turn has none before it")
        return self.before

    @property
    def gain(self) -> int:
        """Tokens beyond the previous prompt."""
        return self.turn.prompt_tokens - self.previous.prompt_tokens

    @property
    def growth(self) -> int:
        """Tokens beyond the previous prompt and its output."""
        return self.gain - self.previous.output_tokens

    @property
    def grows(self) -> bool:
        """Whether it extends the previous prompt and all of its output, as far as can be told."""
        return self.before is not None and self.edit is Edit.EXTENDS and self.growth >= 0

    @property
    def tool_s(self) -> float | None:
        """The gap after a tool call without the request's own server time, where both ends are known."""
        if self.before is None or self.before.stop != "tool_use":
            return None
        if self.before.api_s is None or self.turn.api_s is None:
            return None
        return self.turn.gap_s - self.turn.api_s

    @property
    def cut_blocks(self) -> int:
        """Blocks of the previous prompt that it does not start with."""
        return self.previous.block_count - self.turn.shared_blocks


def observe(number: int, session: Session) -> Iterator[Seen]:
    """All turns of a session, agent after agent."""
    origins = lineage(session)
    for a, agent in enumerate(session.agents):
        yield from _agent((number, a), agent, origins[a])


def _agent(key: tuple[int, int], agent: Agent, origins: tuple[Kept | None, ...]) -> Iterator[Seen]:
    turns = agent.turns
    is_long = max(turn.prompt_tokens for turn in turns) > WINDOW_TOKENS
    first_prompt = turns[0].prompt_tokens
    before: Turn | None = None
    last_edit, went_back = Edit.EXTENDS, False
    for number, turn in enumerate(turns):
        seen = Seen(key, number, len(turns), is_long, first_prompt, turn)
        if before is not None:
            edit, origin = edit_of(before, turn), origins[number]
            returned = 0
            if origin is not None and (origin.agent, origin.turn) != (key[1], number - 1):
                returned = origin.blocks - turn.shared_blocks
            seen = Seen(
                key, number, len(turns), is_long, first_prompt, turn, before, edit, last_edit is Edit.SHRINKS,
                edit.is_deep and went_back, returned,
            )  # fmt: skip
            last_edit, went_back = edit, went_back or edit.is_deep
        yield seen
        before = turn


def edit_of(before: Turn, turn: Turn) -> Edit:
    """What `turn` does to the prompt of `before`."""
    had = before.block_count
    cut = had - turn.shared_blocks
    if cut == 0:
        return Edit.EXTENDS
    if cut > _DEEP_BLOCKS or cut > had / 2:
        shorter = turn.prompt_tokens < _SHORTER * before.prompt_tokens
        return Edit.SHRINKS if shorter else Edit.REWRITES
    if cut == 1:
        return Edit.CUTS_ONE
    return Edit.CUTS_FEW if cut <= _FEW_BLOCKS else Edit.CUTS_MORE
