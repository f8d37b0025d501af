"""What a synthetic workload is drawn from: statistics of recorded sessions, nothing of any one of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from flashstate.files import check_regular
from flashstate.traces.synth import circumstances as at
from flashstate.traces.synth.names import DROPS, PAIRS, QUANTITIES, STOPS, USER, Edit
from flashstate.traces.synth.tables import ALONE, Axes, Shares, Tables


def _need(axes: Axes, **tables: Shares | Tables) -> None:
    """Raises ValueError for a table that has other axes, or nothing in it."""
    for name, table in tables.items():
        if len(table.axes) != len(axes):
            raise ValueError(f"{name} needs {len(axes)} axes, not {len(table.axes)}")
        if not table.cells:
            raise ValueError(f"{name} needs cells")


def _need_if(wanted: bool, axes: Axes, **tables: Shares | Tables) -> None:
    """Like `_need`, for tables that may be empty unless something wants them."""
    _need(axes, **{name: table for name, table in tables.items() if wanted or table.cells})


def _need_outcomes(count: int, **tables: Shares) -> None:
    for name, table in tables.items():
        if any(len(shares) != count for shares in table.cells.values()):
            raise ValueError(f"{name} needs {count} shares a cell")


def _need_share(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"{name} must be from 0 to 1, not {share}")


@dataclass(frozen=True, slots=True)
class Start:
    """A kind of session, by how it starts, and its share of all. Quantiles of tokens and of turns."""

    share: float
    is_long: bool
    streaming: bool
    first_prompt: Tables
    turns: Tables
    together: float
    """Correlation of the two, on the normal scale."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, not {self.share}")
        if not -1 <= self.together <= 1:
            raise ValueError(f"together must be from -1 to 1, not {self.together}")
        _need(ALONE, first_prompt=self.first_prompt, turns=self.turns)


@dataclass(frozen=True, slots=True)
class ApiTime:
    """Logarithm of a request's seconds: weights of 1, o, o^2, p, p^2, and what is left.

    o is the logarithm of the output plus 1, p of the prompt (tokens).
    """

    weights: tuple[float, float, float, float, float]
    rest: Tables
    """Streaming, output tokens."""
    least_s: float
    most_s: float

    def __post_init__(self) -> None:
        if not 0 < self.least_s <= self.most_s:
            raise ValueError("least_s must be above 0 and at most most_s")
        _need(at.REST, rest=self.rest)

    @staticmethod
    def terms(output_tokens: int, prompt_tokens: int) -> tuple[float, ...]:
        """What the weights belong to."""
        o, p = math.log1p(output_tokens), math.log(prompt_tokens)
        return 1.0, o, o * o, p, p * p

    def log_s(self, output_tokens: int, prompt_tokens: int) -> float:
        """The logarithm of the seconds, but for what is left."""
        terms = self.terms(output_tokens, prompt_tokens)
        return sum(weight * term for weight, term in zip(self.weights, terms, strict=True))


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How an agent goes on from turn to turn. After each table: its axes."""

    stops: Shares
    """Stops: streaming, turns of the session, previous stop."""
    last_stops: Shares
    """Stops of the last turn: none."""
    edits: Shares
    """Edits: previous stop, turns of the session, previous edit was a compaction, prompt tokens, long session."""
    drops_output: Shares
    """No or yes, where the previous prompt is extended without all of its output: output tokens."""
    growth: Tables
    """Tokens beyond previous prompt and output, of those that extend both: see `at_growth`."""
    kept_output: Tables
    """What the prompt gained as a part of the output, of those that drop some of it: none."""
    cut_growth: Tables
    """Tokens beyond the previous prompt, of those that cut some blocks: Edit."""
    cut_blocks: Tables
    """Blocks cut: Edit."""
    output: Tables
    """Tokens: stop."""
    api: ApiTime | None
    """None where no server times were recorded."""
    timed: Shares
    """No or yes, whether the server's time was recorded: stop."""
    ttft: Tables
    """Seconds to the first token of streams: the server's time in seconds."""
    gap_s: Tables
    """From end to start: previous stop, edit, turns of the session."""
    tool_s: Tables
    """Gap minus the request's own server time, after a tool call: edit, that time in seconds.

    The public traces need it: most of their turns were sent twice, and the gap holds the other sending.
    """
    tool_results: Shares
    """No or yes, whether a prompt is said to hold new tool results: previous stop, edit."""
    spread: Mapping[str, float]
    """How much a share differs between agents: variance of a factor of mean 1. By edit, drops_output, end_turn."""

    def __post_init__(self) -> None:
        _need(at.AFTER, stops=self.stops)
        _need(ALONE, last_stops=self.last_stops)
        _need(at.EDIT, edits=self.edits)
        _need(at.OUTPUT, drops_output=self.drops_output)
        _need(at.GROWTH, growth=self.growth)
        _need(at.STOP, output=self.output, timed=self.timed)
        _need(at.GAP, gap_s=self.gap_s)
        _need_outcomes(len(STOPS), stops=self.stops, last_stops=self.last_stops)
        _need_outcomes(len(Edit), edits=self.edits)
        _need_outcomes(2, drops_output=self.drops_output, timed=self.timed, tool_results=self.tool_results)
        cuts = any(any(shares[Edit.CUTS_ONE : Edit.SHRINKS]) for shares in self.edits.cells.values())
        drops = any(shares[1] for shares in self.drops_output.cells.values())
        _need_if(cuts, at.KIND, cut_growth=self.cut_growth, cut_blocks=self.cut_blocks)
        _need_if(drops, ALONE, kept_output=self.kept_output)
        _need_if(False, at.API_S, ttft=self.ttft)
        _need_if(False, at.TOOL, tool_s=self.tool_s)
        _need(at.TYPES, tool_results=self.tool_results)
        known = {DROPS, USER, *(edit.name.lower() for edit in Edit)}
        if not self.spread.keys() <= known or not all(
            0 <= value < math.inf for value in self.spread.values()
        ):
            raise ValueError(f"spread must have numbers from 0 on, for {', '.join(sorted(known))}")


@dataclass(frozen=True, slots=True)
class Returns:
    """How prompts go on that go back to near their beginning."""

    most: float
    """The most of them, as a part of a session's turns."""
    ratio: Tables
    """New prompt by previous prompt: Edit, prompt tokens."""
    prefix: Tables
    """Tokens kept, one number a session: none."""
    to_nothing: float
    """Share that keeps nothing."""
    to_earlier: float
    """Share that goes on with an earlier version of the prompt, if there is one."""
    earlier_blocks: Tables
    """Blocks shared with that version beyond what is shared with the previous prompt: none."""

    def __post_init__(self) -> None:
        _need_share(most=self.most, to_nothing=self.to_nothing, to_earlier=self.to_earlier)
        _need_if(bool(self.prefix.cells), at.RATIO, ratio=self.ratio)
        _need_if(False, ALONE, prefix=self.prefix)
        _need_if(self.to_earlier > 0, ALONE, earlier_blocks=self.earlier_blocks)


@dataclass(frozen=True, slots=True)
class SubAgents:
    """Who is started by tool calls of the main agent. Tables without axes, but for `sessions`."""

    sessions: Shares
    """No or yes: turns of the session."""
    launches: Tables
    """Turns that start some, of a session that has any."""
    at_once: Tables
    """How many a turn starts."""
    place: Tables
    """The turn that starts them, as a part of the session."""
    awaited: float
    """Share of launches that the main agent waits for."""
    start_s: Tables
    """From the end of the starting turn."""
    resume_s: Tables
    """From the end of the last one awaited to the main agent's next turn."""
    turns: Tables
    first_prompt: Tables
    shared: Tables
    """The part of a first prompt that is the same as an earlier one's of the session."""
    behaviour: Behaviour

    def __post_init__(self) -> None:
        _need_share(awaited=self.awaited)
        _need(at.SUB_AGENTS, sessions=self.sessions)
        _need_outcomes(2, sessions=self.sessions)
        _need(ALONE, launches=self.launches, at_once=self.at_once, place=self.place, start_s=self.start_s)
        _need(ALONE, turns=self.turns, first_prompt=self.first_prompt)
        _need_if(self.awaited > 0, ALONE, resume_s=self.resume_s)
        _need_if(False, ALONE, shared=self.shared)


@dataclass(frozen=True, slots=True)
class Correlation:
    """How QUANTITIES go together, on the normal scale, within a session and between sessions."""

    session_part: tuple[float, ...]
    """How much of each one's variance is between sessions."""
    with_turns: tuple[float, ...]
    """Of a session's level of each with its number of turns."""
    between: tuple[float, ...]
    """Of sessions' levels, in the order of PAIRS."""
    within: tuple[float, ...]

    def __post_init__(self) -> None:
        for values, count in (
            (self.session_part, len(QUANTITIES)),
            (self.with_turns, len(QUANTITIES)),
            (self.between, len(PAIRS)),
            (self.within, len(PAIRS)),
        ):
            if len(values) != count or not all(-1 <= value <= 1 for value in values):
                raise ValueError(f"needs {count} numbers from -1 to 1 where it has {list(values)}")
        if min(self.session_part) < 0:
            raise ValueError("session_part must be 0 or more")


@dataclass(frozen=True, slots=True)
class Params:
    """All of it. `windows` are the most prompt tokens of normal and of long sessions."""

    source: str
    sessions: int
    turns: int
    windows: tuple[int, int]
    starts: tuple[Start, ...]
    main: Behaviour
    returns: Returns
    sub_agents: SubAgents | None
    correlation: Correlation

    def __post_init__(self) -> None:
        if not self.starts:
            raise ValueError("starts must not be empty")
        if min(self.windows) < 1:
            raise ValueError(f"windows must be 1 or more, not {list(self.windows)}")


class ParamsError(Exception):
    """A parameter file that cannot be used. One line: the file, the place, the reason."""


def claude_code() -> Params:
    """The parameters that come with flashstate, fitted to public traces of Claude Code."""
    return _decode("claude_code.json", files(__package__).joinpath("claude_code.json").read_bytes())


def load_params(file: Path) -> Params:
    """Reads what `save_params` wrote. Raises ParamsError."""
    try:
        check_regular(file)
        content = file.read_bytes()
    except OSError as error:
        raise ParamsError(f"{file}: {error.strerror or error}") from None
    return _decode(str(file), content)


def save_params(params: Params, file: Path) -> None:
    """Writes JSON, one line for each part. Raises ParamsError if that cannot be done."""
    parts = msgspec.to_builtins(params)
    lines = [f'  "{name}": {msgspec.json.encode(_brief(part)).decode()}' for name, part in parts.items()]
    try:
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    except OSError as error:
        raise ParamsError(f"{file}: {error.strerror or error}") from None


def _brief(value: Any) -> Any:
    """With whole numbers instead of 7.0: the file is shorter."""
    if isinstance(value, dict):
        return {name: _brief(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_brief(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _decode(name: str, content: bytes) -> Params:
    try:
        return msgspec.json.decode(content, type=Params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ParamsError(f"{name}: {' '.join(str(error).split())}") from None
