"""One synthetic agent, request after request."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection
from dataclasses import dataclass
from random import Random
from typing import Final

from flashstate.traces.session import Turn
from flashstate.traces.synth import circumstances as at
from flashstate.traces.synth.copula import Copula, Levels
from flashstate.traces.synth.edits import Before, Editor, Prompt, Room
from flashstate.traces.synth.names import QUANTITIES, STOPS, TOOL_RESULT, USER, Edit
from flashstate.traces.synth.params import Behaviour, Returns
from flashstate.traces.synth.prompts import Ids

_LEAST_S: Final = 0.01
"""Times are multiples of it."""
_OUTPUT_TYPES: Final = {"tool_use": ("tool_use",), "end_turn": ("text",)}
_GROWTH, _OUTPUT, _API, _GAP = range(len(QUANTITIES))


@dataclass(frozen=True, slots=True)
class Course:
    """What is drawn once for an agent. `calls_tools`: turns that surely end in a tool call."""

    streaming: bool
    room: Room
    levels: Levels
    calls_tools: Collection[int] = ()


class Walk:
    """Draws the turns of one agent: `first`, then `next` for each later one."""

    def __init__(
        self, behaviour: Behaviour, returns: Returns, copula: Copula, course: Course, draw: Random, ids: Ids
    ) -> None:
        self._of, self._copula, self._course, self._draw = behaviour, copula, course, draw
        self._factors = {name: _factor(draw, spread) for name, spread in behaviour.spread.items()}
        self._editor = Editor(behaviour, returns, course.room, self._factors, draw, ids)
        self._turns: list[Turn] = []
        self._heard_s = 0.0
        """When the last request whose end is known was done."""

    @property
    def turns(self) -> tuple[Turn, ...]:
        """What was drawn so far."""
        return tuple(self._turns)

    def first(self, time_s: float, gap_s: float, inherited: array[int]) -> Turn:
        """The first turn, at a time; its prompt starts with the inherited blocks."""
        levels = self._copula.turn(self._draw, self._course.levels)
        return self._request(self._editor.first(inherited), USER, levels, time_s, gap_s)

    def next(self, not_before_s: float = 0.0) -> Turn | None:
        """The next turn; None when the agent is done.

        It starts when the agent has what it waits for, and not before a time given.
        """
        if len(self._turns) == self._course.room.turns:
            return None
        levels = self._copula.turn(self._draw, self._course.levels)
        last = self._turns[-1]
        before = Before(last.prompt_tokens, last.output_tokens, last.stop, len(self._turns) - 1)
        prompt = self._editor.next(before, levels[_GROWTH])
        return None if prompt is None else self._request(prompt, last.stop, levels, not_before_s, None)

    def _request(
        self,
        prompt: Prompt,
        stop_before: str,
        levels: Levels,
        time_s: float,
        gap_s: float | None,
    ) -> Turn:
        stop = self._stop(stop_before)
        output = max(0, round(self._of.output.at(levels[_OUTPUT], STOPS.index(stop))))
        needs_s = self._needs_s(output, prompt.tokens, levels[_API])
        think_s = 0.0
        if gap_s is None:
            last = self._turns[-1]
            time_s = hundredths(
                max(time_s, last.end_s + self._gap_s(stop_before, prompt.edit, needs_s, levels[_GAP]))
            )
            time_s = max(time_s, hundredths(last.time_s + _LEAST_S))
            gap_s = max(0.0, time_s - last.end_s)
            think_s = float(max(0, round(time_s - self._heard_s)))
        is_timed = needs_s is not None and self._draw.random() < self._of.timed.of(STOPS.index(stop))[1]
        api_s = needs_s if is_timed else None
        turn = Turn(
            time_s, gap_s, prompt.tokens, output, prompt.blocks.shared, prompt.blocks.new, api_s, think_s,
            self._ttft_s(api_s), stop, "synthetic", self._course.streaming,
            self._input_types(stop_before, prompt.edit), _OUTPUT_TYPES.get(stop, ()),
        )  # fmt: skip
        self._turns.append(turn)
        if api_s is not None or not self._heard_s:
            self._heard_s = turn.end_s
        return turn

    def _input_types(self, stop_before: str, edit: Edit) -> tuple[str, ...]:
        share = self._of.tool_results.of(*at.at_types(stop_before, edit))[1] if self._turns else 0.0
        if self._draw.random() >= share:
            return ("text",)
        return ("text", TOOL_RESULT, "tool_use") if stop_before != "tool_use" else (TOOL_RESULT,)

    def _stop(self, stop_before: str) -> str:
        number = len(self._turns)
        if number in self._course.calls_tools:
            return "tool_use"
        if number == self._course.room.turns - 1:
            shares = self._of.last_stops.of()
        else:
            where = at.at_stop(self._course.streaming, self._course.room.turns, stop_before)
            shares = _times(self._of.stops.of(*where), STOPS.index(USER), self._factors.get(USER, 1.0))
        return STOPS[self._draw.choices(range(len(STOPS)), shares)[0]]

    def _needs_s(self, output: int, prompt: int, level: float) -> float | None:
        """Seconds that the server takes; None if the parameters know nothing of that."""
        api = self._of.api
        if api is None:
            return None
        log_s = min(
            api.log_s(output, prompt) + api.rest.at(level, self._course.streaming, output),
            math.log(api.most_s),
        )
        return max(_LEAST_S, hundredths(max(math.exp(log_s), api.least_s)))

    def _gap_s(self, stop_before: str, edit: Edit, needs_s: float | None, level: float) -> float:
        if stop_before == "tool_use" and needs_s is not None and self._of.tool_s.cells:
            return max(_LEAST_S, needs_s + self._of.tool_s.at(level, edit, needs_s))
        return max(_LEAST_S, self._of.gap_s.at(level, *at.at_gap(stop_before, edit, self._course.room.turns)))

    def _ttft_s(self, api_s: float | None) -> float | None:
        if api_s is None or not self._course.streaming or not self._of.ttft.cells:
            return None
        return hundredths(min(api_s, self._of.ttft.at(self._draw.random(), api_s)))


def _factor(draw: Random, variance: float) -> float:
    """Of mean 1."""
    return draw.gammavariate(1 / variance, variance) if variance > 0 else 1.0


def _times(shares: tuple[float, ...], outcome: int, factor: float) -> tuple[float, ...]:
    """The shares with one of them multiplied, the others making up for it."""
    share = min(1.0, shares[outcome] * factor)
    rest = 1 - shares[outcome]
    scale = (1 - share) / rest if rest > 0 else 0.0
    return tuple(share if i == outcome else value * scale for i, value in enumerate(shares))


def hundredths(seconds: float) -> float:
    """Rounded as times are."""
    return round(seconds, 2)
