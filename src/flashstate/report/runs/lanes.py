"""Swim lanes: a row an agent of a session, a bar a request, filled by what became of its prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from flashstate.report.figures import count, percent, seconds
from flashstate.report.plot import Axis, head
from flashstate.report.runs.request import MAIN, Request, Run
from flashstate.report.simulation import MISS_REASONS

MOST_LANES: Final = 20
MOST_BARS: Final = 1200
"""A page of them stays a megabyte or so."""

_WIDTH: Final = 960
_LEFT: Final = 116
_RIGHT: Final = 12
_TOP: Final = 8
_PITCH: Final = 26
_BAR: Final = 16
_BOTTOM: Final = 40
_NAME: Final = 13

FILLS: Final = {
    "resumed": "resumed from a state",
    "recomputed": "computed again, reason not known",
    **{reason: f"computed again: {reason} miss" for reason in MISS_REASONS},
    "new": "computed for the first time",
    "unknown": "the file does not say",
    "failed": "failed",
}
"""The classes of a bar's parts, from the bottom up, and what they mean."""

Lane = tuple[str, str]
"""(session, agent)."""


def sessions_shown(runs: Sequence[Run]) -> list[str]:
    """The sessions with the most recomputed tokens in all runs together, in the order they began."""
    lost: dict[str, int] = {}
    begun: dict[str, float] = {}
    agents: dict[str, set[str]] = {}
    for run in runs:
        for request in run.requests:
            if request.session is not None:
                name = request.session
                lost[name] = lost.get(name, 0) + (request.recomputed_tokens or 0)
                begun[name] = min(begun.get(name, request.start_s), request.start_s)
                agents.setdefault(name, set()).add(request.agent)
    chosen: list[str] = []
    lanes = 0
    for name in sorted(lost, key=lambda name: (-lost[name], begun[name])):
        lanes += len(agents[name])
        if chosen and lanes > MOST_LANES:
            break
        chosen.append(name)
    return sorted(chosen, key=lambda name: begun[name])


def lanes_of(run: Run, sessions: Sequence[str]) -> Mapping[Lane, list[Request]]:
    """The requests of these sessions, a lane an agent, the main agent first; `MOST_LANES` lanes at most."""
    lanes: dict[Lane, list[Request]] = {}
    for request in run.requests:
        if request.session is not None and request.session in sessions:
            lanes.setdefault((request.session, request.agent), []).append(request)
    place = {name: number for number, name in enumerate(sessions)}
    order = sorted(lanes, key=lambda lane: (place[lane[0]], lane[1] != MAIN, lanes[lane][0].start_s))
    return {lane: lanes[lane] for lane in order[:MOST_LANES]}


def fills_in(runs: Sequence[Run], sessions: Sequence[str]) -> dict[str, str]:
    """Those of `FILLS` that are drawn for these sessions."""
    found = {
        fill
        for run in runs
        for requests in lanes_of(run, sessions).values()
        for request in requests
        for fill, tokens in parts(request).items()
        if tokens
    }
    return {fill: meaning for fill, meaning in FILLS.items() if fill in found}


def parts(request: Request) -> dict[str, int]:
    """What became of its prompt tokens, by the classes in `FILLS`; they add up to the prompt."""
    whole = request.prompt_tokens
    if request.error is not None:
        return {"failed": whole or 1}
    if request.cached_tokens is None:
        return {"unknown": whole or 1}
    resumed = min(request.cached_tokens, whole)
    again = min(request.recomputed_tokens or 0, whole - resumed)
    found = {"resumed": resumed}
    for reason in MISS_REASONS:
        missed = 0 if request.missed_tokens is None else request.missed_tokens.get(reason, 0)
        found[reason] = min(missed, whole - sum(found.values()))
    known = sum(found.values()) - resumed
    found["recomputed"] = max(0, again - known)
    found["new"] = whole - sum(found.values())
    return found


def swim_lanes(label: str, run: Run, sessions: Sequence[str], x: Axis) -> str:
    """An <svg> of the lanes. Bars are as long as the request took; the line below, as its first token did."""
    lanes = lanes_of(run, sessions)
    height = _TOP + _PITCH * len(lanes) + _BOTTOM
    shown = sum(map(len, lanes.values()))
    description = f"{len(lanes)} lanes, {min(shown, MOST_BARS)} requests; the table has each session's sums."
    drawn = [head(label, description, _WIDTH, height), *_axis(x, height)]
    left = MOST_BARS
    for row, (lane, requests) in enumerate(lanes.items()):
        top = _TOP + row * _PITCH
        drawn.append(f'<text x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(_name(lane))}</text>')
        for request in requests[: max(left, 0)]:
            drawn += _bar(request, top, x)
        left -= len(requests)
    return "\n".join([*drawn, "</svg>"])


def _axis(x: Axis, height: float) -> Iterator[str]:
    for tick in x.ticks:
        at = _x(x, tick)
        yield f'<line class="grid" x1="{at}" x2="{at}" y1="{_TOP}" y2="{height - _BOTTOM}"/>'
        yield f'<text x="{at}" y="{height - _BOTTOM + 16}" text-anchor="middle">{x.show(tick)}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text class="title" x="{middle}" y="{height - 6}" text-anchor="middle">{escape(x.title)}</text>'


def _bar(request: Request, top: float, x: Axis) -> Iterator[str]:
    left = _x(x, request.start_s)
    width = round(max(1.5, _x(x, request.end_s) - left), 1)
    yield f'<g class="bar"><title>{escape(words(request))}</title>'
    bottom = top + _BAR
    found = parts(request)
    whole = sum(found.values()) or 1
    for fill in FILLS:
        high = round(_BAR * found.get(fill, 0) / whole, 2)
        if high:
            bottom = round(bottom - high, 2)
            yield f'<rect class="{fill}" x="{left}" y="{bottom}" width="{width}" height="{high}"/>'
    if request.first_s is not None:
        waited = round(max(1.0, _x(x, request.first_s) - left), 1)
        yield f'<rect class="wait" x="{left}" y="{top + _BAR + 1}" width="{waited}" height="2"/>'
    yield "</g>"


def words(request: Request) -> str:
    """A request in one line: where it resumed, what was computed again and why, how long it took."""
    said = f"{request.session}, " if request.session else ""
    said += "" if request.agent == MAIN else f"{request.agent}, "
    said += f"turn {request.turn}" + (f" ({request.kind})" if request.kind else "")
    if request.error is not None:
        return f"{said}: {request.error}"
    whole, cached = request.prompt_tokens, request.cached_tokens
    if cached is None:
        said += f": {count(whole)} prompt tokens"
    else:
        said += f": resumed at {count(cached)} of {count(whole)} prompt tokens"
        said += f" ({percent(cached / whole)})" if whole else ""
    if request.recomputed_tokens:
        said += f", {count(request.recomputed_tokens)} computed again"
    if request.missed_tokens is not None:
        missed = [f"{reason} {count(tokens)}" for reason, tokens in request.missed_tokens.items() if tokens]
        said += f" ({', '.join(missed)})" if missed else ""
    ttft = None if request.first_s is None else request.first_s - request.start_s
    return f"{said}; TTFT {seconds(ttft)}, took {seconds(request.end_s - request.start_s)}"


def _name(lane: Lane) -> str:
    session, agent = lane
    name = session if agent == MAIN else f"· {agent}"
    half = _NAME // 2
    return name if len(name) <= _NAME else f"{name[:half]}…{name[-half:]}"  # names often differ at the end


def _x(axis: Axis, value: float) -> float:
    return round(_LEFT + axis.share(min(value, axis.most)) * (_WIDTH - _LEFT - _RIGHT), 1)
