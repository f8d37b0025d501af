"""Where a turn is on the axes of the tables: the fit and the generator both ask here.

Bounds between buckets are where the recorded behaviour changes: near the context window, at the first turns.
"""

from __future__ import annotations

from typing import Final

from flashstate.traces.synth.names import STOPS, Edit
from flashstate.traces.synth.tables import Axes

_FLAG = (0.5,)
_TURNS = (20.0, 60.0, 140.0)
_EARLY_TURNS: Final = 10

STOP: Final[Axes] = ((0.5, 1.5),)
AFTER: Final[Axes] = (_FLAG, _TURNS, *STOP)
EDIT: Final[Axes] = (*STOP, _TURNS, _FLAG, (3e4, 6e4, 1e5, 1.4e5, 1.5e5, 1.65e5, 2.5e5), _FLAG)
KIND: Final[Axes] = ((1.5, 2.5, 3.5, 4.5),)
OUTPUT: Final[Axes] = ((128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0),)
GROWTH: Final[Axes] = (*STOP, (2.0, 3.0, 5.0, _EARLY_TURNS, 6e4, 1.5e5, 3e5), (3e4, 1e5), _TURNS)
_EDIT_CLASS = (1.5, 3.5, 4.5)
GAP: Final[Axes] = (*STOP, _EDIT_CLASS, _TURNS)
RATIO: Final[Axes] = (*KIND, (6e4, 1.4e5))
REST: Final[Axes] = (_FLAG, *OUTPUT)
SUB_AGENTS: Final[Axes] = ((60.0,),)
API_S: Final[Axes] = ((4.0, 6.0, 10.0, 20.0),)
TOOL: Final[Axes] = (_EDIT_CLASS, *API_S)
TYPES: Final[Axes] = (*STOP, _EDIT_CLASS)

Where = tuple[float, ...]


def stop_index(stop: str) -> int:
    """Its place in STOPS. A reason that we do not know ends the turn."""
    return STOPS.index(stop) if stop in STOPS else STOPS.index("end_turn")


def at_stop(streaming: bool, turns: int, stop_before: str) -> Where:
    """For how a request ends."""
    return (streaming, turns, stop_index(stop_before))


def at_edit(stop_before: str, turns: int, after_shrink: bool, prompt_before: int, is_long: bool) -> Where:
    """For what a prompt does to the one before it."""
    return (stop_index(stop_before), turns, after_shrink, prompt_before, is_long)


def at_growth(stop_before: str, number: int, prompt_before: int, first_prompt: int, turns: int) -> Where:
    """For growth: on the second axis comes the turn's number first, from the tenth on the size of the prompt."""
    age = number if number < _EARLY_TURNS else prompt_before
    return (stop_index(stop_before), age, first_prompt, turns)


def at_gap(stop_before: str, edit: Edit, turns: int) -> Where:
    """For the time from one request's end to the next one's start."""
    return (stop_index(stop_before), edit, turns)


def at_types(stop_before: str, edit: Edit) -> Where:
    """For what a prompt is said to hold."""
    return (stop_index(stop_before), edit)


def at_ratio(edit: Edit, prompt_before: int) -> Where:
    """For the length of a prompt that goes back to near its beginning."""
    return (edit, prompt_before)
