from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from flashstate.traces.session import BLOCK_TOKENS, MAIN_AGENT, Agent, Session, Turn
from flashstate.traces.synth.fit import FitError, fit
from flashstate.traces.synth.generate import generate
from flashstate.traces.synth.names import Edit
from flashstate.traces.synth.observe import edit_of, observe
from flashstate.traces.synth.params import ParamsError, claude_code, load_params, save_params
from tests.traces.made import make_session

GROWTH = 500


def make_turn(number: int, before: Turn | None, output: int = 60, **fields: Any) -> Turn:
    """A turn that keeps what was there and adds GROWTH tokens, ten seconds after the one before."""
    prompt = before.prompt_tokens + before.output_tokens + GROWTH if before else 5000
    shared = before.block_count if before else 0
    new = array("q", range(shared, prompt // BLOCK_TOKENS))
    values: dict[str, Any] = {
        "time_s": 12.0 * number,
        "gap_s": 10.0 if before else 0.0,
        "api_s": 2.0,
    } | fields
    return Turn(prompt_tokens=prompt, output_tokens=output, shared_blocks=shared, new_blocks=new, **values)


def make_sessions(count: int = 20, turns: int = 10, **fields: Any) -> Iterator[Session]:
    draw = Random(0)
    for session in range(count):
        made: list[Turn] = []
        for number in range(turns):
            made.append(make_turn(number, made[-1] if made else None, draw.randint(50, 70), **fields))
        yield Session(f"s{session}", Agent(MAIN_AGENT, None, tuple(made)), ())


def test_what_is_regular_is_found() -> None:
    params = fit(make_sessions(stop="tool_use"), "made")
    assert (params.sessions, params.turns) == (20, 200)
    assert params.main.edits.of(0, 10, 0, 6000, 0) == (1, 0, 0, 0, 0, 0)
    assert params.main.drops_output.of(60) == (1, 0)
    assert set(params.main.growth.cells[""]) == {GROWTH}
    assert params.main.tool_s.at(0.5, 0, 2.0) == pytest.approx(8.0)
    assert params.main.gap_s.at(0.5, 0, 0, 10) == pytest.approx(10.0)
    assert [start.turns.at(0.5) for start in params.starts] == pytest.approx([10.0])
    assert [start.first_prompt.at(0.5) for start in params.starts] == pytest.approx([5000.0])
    assert params.sub_agents is None


def test_what_is_regular_is_drawn_again() -> None:
    for session in generate(fit(make_sessions(stop="tool_use"), "made"), 5, 0):
        assert len(session.main.turns) == 10
        for before, turn in pairwise(session.main.turns):
            assert turn.prompt_tokens - before.prompt_tokens - before.output_tokens == GROWTH
            assert turn.gap_s == pytest.approx(10.0)
            assert turn.shared_blocks == before.block_count


def test_formats_without_stops_and_server_times_can_be_fitted() -> None:
    params = fit(make_sessions(api_s=None), "made")
    assert params.main.api is None
    for session in generate(params, 5, 0):
        assert all(turn.api_s is None and turn.stop == "" for turn in session.main.turns)
        assert all(turn.gap_s == pytest.approx(10.0) for turn in session.main.turns[1:])


def test_stops_that_nobody_knows_end_the_turn() -> None:
    params = fit(make_sessions(stop="max_tokens"), "made")
    assert {turn.stop for session in generate(params, 3, 0) for turn in session.main.turns} == {"end_turn"}


def test_a_fit_finds_the_parameters_that_sessions_were_drawn_from() -> None:
    truth = claude_code()
    found = fit(generate(truth, 120, 1), "again")
    typical = {"growth": (0, 100_000, 20_000, 100), "output": (0,), "gap_s": (1, 0, 100), "tool_s": (0, 5.0)}
    for name, where in typical.items():
        drawn, expected = (getattr(params.main, name).at(0.5, *where) for params in (found, truth))
        assert drawn == pytest.approx(expected, rel=0.2), name
    whole = [of.main.edits.of(0, 100, 0, 70_000, 0)[0] for of in (found, truth)]
    assert whole[0] == pytest.approx(whole[1], abs=0.02)
    assert found.correlation.session_part == pytest.approx(truth.correlation.session_part, abs=0.1)
    assert found.correlation.within == pytest.approx(truth.correlation.within, abs=0.1)
    assert found.returns.most == pytest.approx(truth.returns.most, abs=0.03)


def test_recordings_that_another_stands_for_are_left_out() -> None:
    twins = (replace(session, name=f"{session.name}b", primary=False) for session in make_sessions())
    sessions = [*make_sessions(), *twins]
    assert fit(sessions, "made") == fit(make_sessions(), "made")


@pytest.mark.parametrize(("count", "turns"), [(9, 30), (20, 5), (0, 0)])
def test_too_little_to_fit(count: int, turns: int) -> None:
    with pytest.raises(FitError, match="too few to fit: 10 and 100 are needed") as caught:
        fit(make_sessions(count, turns), "made")
    assert str(caught.value).startswith(
        f"{count} sessions with {count * max(0, turns - 1)} prompts that extend"
    )


def ids(kept: int, count: int) -> list[int]:
    return [*range(kept), *range(1000 + kept, 1000 + count)]


@pytest.mark.parametrize(
    ("had", "kept", "count", "edit"),
    [
        (100, 100, 120, Edit.EXTENDS),
        (100, 100, 100, Edit.EXTENDS),
        (100, 99, 120, Edit.CUTS_ONE),
        (100, 98, 120, Edit.CUTS_FEW),
        (100, 96, 120, Edit.CUTS_FEW),
        (100, 95, 120, Edit.CUTS_MORE),
        (100, 50, 120, Edit.CUTS_MORE),
        (100, 49, 120, Edit.REWRITES),
        (100, 49, 90, Edit.REWRITES),
        (100, 49, 89, Edit.SHRINKS),
        (1000, 744, 800, Edit.CUTS_MORE),
        (1000, 743, 800, Edit.SHRINKS),
        (1000, 0, 1000, Edit.REWRITES),
    ],
)
def test_edits(had: int, kept: int, count: int, edit: Edit) -> None:
    before, turn = make_session(prompts=[ids(had, had), ids(kept, count)]).main.turns
    assert edit_of(before, turn) is edit


def test_a_return_to_an_earlier_version_is_seen() -> None:
    first, other = list(range(400)), [*range(20), *range(1000, 1300)]
    back = [*first[:25], *range(2000, 2300)]
    seen = list(observe(0, make_session(prompts=[first, other, back])))
    assert [s.could_return for s in seen] == [False, False, True]
    assert [s.returned_blocks for s in seen] == [0, 0, 5]
    assert [s.after_shrink for s in seen] == [False, False, True]


def test_parameters_survive_their_file(tmp_path: Path) -> None:
    params = claude_code()
    save_params(params, tmp_path / "p.json")
    assert load_params(tmp_path / "p.json") == params


def test_our_parameters_are_small_and_tell_of_no_trace() -> None:
    """Statistics only: nothing in the file grows with the number of requests, or names one."""
    params = claude_code()
    content = files("flashstate.traces.synth").joinpath("claude_code.json").read_text()
    assert len(content) < 14_000
    assert params.turns > 25_000
    assert "trace_" not in content and "claude-" not in content


def change(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    *parents, last = path.split(".")
    at: Any = document
    for step in parents:
        at = at[int(step)] if isinstance(at, list) else at[step]
    at[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("starts", [], "starts must not be empty"),
        ("windows", [0, 5], "windows must be 1 or more, not [0, 5]"),
        ("windows", ["a", 5], "Expected `int`, got `str` - at `$.windows[0]`"),
        ("starts.0.share", 2, "share must be above 0 and at most 1, not 2"),
        ("starts.0.turns.cells", {}, "turns needs cells"),
        ("main.growth.axes", [], "is not on the axes"),
        ("main.output.cells", {"": [1, 2]}, "needs 11 or 7 quantiles, not 2"),
        ("main.edits.cells", {"": [1]}, "edits needs 6 shares a cell"),
        ("main.cut_blocks.cells", {}, "cut_blocks needs cells"),
        ("main.spread", {"nonsense": 1}, "spread must have numbers from 0 on"),
        ("main.api.least_s", 0, "least_s must be above 0"),
        ("returns.to_nothing", -1, "to_nothing must be from 0 to 1"),
        ("correlation.within", [0.0], "needs 6 numbers from -1 to 1"),
        ("sub_agents.place.cells", {}, "place needs cells"),
    ],
)
def test_a_broken_file_is_told_in_one_line(tmp_path: Path, path: str, value: object, reason: str) -> None:
    save_params(claude_code(), tmp_path / "p.json")
    document = change(json.loads((tmp_path / "p.json").read_text()), path, value)
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(ParamsError) as caught:
        load_params(tmp_path / "p.json")
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'p.json'}: ") and reason in message and "\n" not in message


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"source": "x"}'])
def test_a_file_that_holds_no_parameters(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.json").write_bytes(content)
    with pytest.raises(ParamsError, match=r"p\.json: "):
        load_params(tmp_path / "p.json")
