"""Draws what each prompt of an agent does to the one before it: how it grows, where it cuts, where it returns to."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from flashstate.traces.session import BLOCK_TOKENS
from flashstate.traces.synth import circumstances as at
from flashstate.traces.synth.names import DROPS, Edit
from flashstate.traces.synth.params import Behaviour, Returns
from flashstate.traces.synth.prompts import Blocks, Ids, Prompts

_MOST: Final = 0.95
"""What all edits together may have as a share, whatever the session's own factors are."""
_EDITS: Final = tuple(Edit)[1:]
_SHALLOW: Final = (Edit.CUTS_ONE, Edit.CUTS_FEW, Edit.CUTS_MORE)
_BLOCKS_CUT: Final = {Edit.CUTS_ONE: (1, 1), Edit.CUTS_FEW: (2, 4), Edit.CUTS_MORE: (5, 256)}


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a prompt does to the one before, its length in tokens, and its blocks."""

    edit: Edit
    tokens: int
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class Before:
    """What the next prompt depends on: the turn before it, and its number."""

    prompt_tokens: int
    output_tokens: int
    stop: str
    number: int


@dataclass(frozen=True, slots=True)
class Room:
    """What is drawn once for an agent's prompts. `prefix_blocks`: what edits near the beginning keep."""

    turns: int
    first_prompt: int
    is_long: bool
    window: int
    prefix_blocks: int


class Editor:
    """Writes the prompts of one agent."""

    def __init__(
        self,
        behaviour: Behaviour,
        returns: Returns,
        room: Room,
        factors: Mapping[str, float],
        draw: Random,
        ids: Ids,
    ) -> None:
        self._of, self._returns, self._room = behaviour, returns, room
        self._drops, self._draw = factors.get(DROPS, 1.0), draw
        self._factors = [factors.get(edit.name.lower(), 1.0) for edit in _EDITS]
        self._prompts = Prompts(ids)
        self._last = Edit.EXTENDS
        self._deep_left = int(returns.most * room.turns + 1e-6)

    def first(self, inherited: array[int]) -> Prompt:
        """The first prompt, which starts with the inherited blocks."""
        tokens = self._room.first_prompt
        return Prompt(Edit.EXTENDS, tokens, self._prompts.begin(tokens // BLOCK_TOKENS, inherited))

    def next(self, before: Before, level: float) -> Prompt | None:
        """The next prompt; `level` from 0 to 1 says how much it grows. None when the context is full."""
        edit = self._edit(before)
        tokens = self._deep_tokens(edit, before) if edit.is_deep else self._tokens(edit, before, level)
        if tokens > self._room.window and not edit.is_deep:
            if not self._may_go_back:
                return None
            edit = Edit.SHRINKS
            tokens = self._deep_tokens(edit, before)
        self._last = edit
        self._deep_left -= edit.is_deep
        tokens = max(1, min(tokens, self._room.window))
        return Prompt(edit, tokens, self._blocks(edit, tokens // BLOCK_TOKENS))

    @property
    def _may_go_back(self) -> bool:
        return self._deep_left > 0 and bool(self._returns.ratio.cells)

    def _edit(self, before: Before) -> Edit:
        where = at.at_edit(
            before.stop,
            self._room.turns,
            self._last is Edit.SHRINKS,
            before.prompt_tokens,
            self._room.is_long,
        )
        shares = self._of.edits.of(*where)
        edits = _EDITS if self._may_go_back else _SHALLOW
        weights = [shares[edit] * factor for edit, factor in zip(edits, self._factors, strict=False)]
        pick = self._draw.random() * max(1.0, sum(weights) / _MOST)
        for edit, weight in zip(edits, weights, strict=True):
            pick -= weight
            if pick < 0:
                return edit
        return Edit.EXTENDS

    def _tokens(self, edit: Edit, before: Before, level: float) -> int:
        if edit is Edit.EXTENDS:
            return before.prompt_tokens + self._gain(before, level)
        return before.prompt_tokens + round(self._of.cut_growth.at(level, edit))

    def _gain(self, before: Before, level: float) -> int:
        """Tokens beyond the previous prompt, of one that extends it."""
        output = before.output_tokens
        share = self._of.drops_output.of(output)[1] * self._drops
        if output > 0 and self._draw.random() < share:
            kept = round(output * self._of.kept_output.at(self._draw.random()))
            return max(0, min(kept, output - 1))
        where = at.at_growth(
            before.stop, before.number + 1, before.prompt_tokens, self._room.first_prompt, self._room.turns
        )
        return output + round(self._of.growth.at(level, *where))

    def _deep_tokens(self, edit: Edit, before: Before) -> int:
        ratio = self._returns.ratio.at(self._draw.random(), *at.at_ratio(edit, before.prompt_tokens))
        return round(ratio * before.prompt_tokens)

    def _blocks(self, edit: Edit, count: int) -> Blocks:
        had = self._prompts.count
        if edit is Edit.EXTENDS:
            return self._prompts.extend(count, had)
        if not edit.is_deep:
            least, most = _BLOCKS_CUT[edit]
            cut = round(self._of.cut_blocks.at(self._draw.random(), edit))
            return self._prompts.extend(count, max(0, had - min(max(cut, least), most)))
        return self._deep(count, had)

    def _deep(self, count: int, had: int) -> Blocks:
        returns, draw = self._returns, self._draw
        if self._prompts.has_left and draw.random() < returns.to_earlier:
            extra = max(1, round(returns.earlier_blocks.at(draw.random())))
            return self._prompts.go_back(count, draw.random(), extra)
        to_nothing = draw.random() < returns.to_nothing
        return self._prompts.rewrite(count, 0 if to_nothing else min(self._room.prefix_blocks, had // 2))
