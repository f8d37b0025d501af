"""Event logs written by hand, where one can work out what a cache must do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flashstate.cli import app
from flashstate.core.cost import PrefillCostModel
from flashstate.core.policies import PolicySettings
from flashstate.simulate.agreement import LogError, check_log

Event = dict[str, Any]

BLOCK = 4
A, B, C = list(range(100, 119)), list(range(200, 203)), list(range(300, 305))


def setup(policy: str = "gds", blocks: int = 8) -> Event:
    settings = PolicySettings(cost=PrefillCostModel(d=1.0, e=0.0))
    return {
        "event": "setup", "version": 1, "policy": policy, "settings": asdict(settings), "block_tokens": BLOCK,
        "kv_width": 1, "blocks": blocks, "history_tokens": 10**6,
    }  # fmt: skip


def arrives(name: str, tokens: Sequence[int], now: float, *, namespace: int = 0) -> Event:
    told = {"request": name, "namespace": namespace, "from": 0, "tokens": list(tokens)}
    return {"event": "arrived", "now": now, **told}


def starts(
    name: str, tokens: Sequence[int], position: int, now: float, *, held: Sequence[int] = (), found: int = 0
) -> list[Event]:
    """A request is looked up and starts."""
    asked = {"found": found, "limit": len(tokens) - 1, "position": position, "held": list(held)}
    return [
        {"event": "lookup", "now": now, "request": name, **asked},
        {"event": "started", "now": now, "request": name, "position": position, "new": True, "learns": True},
    ]


def takes(blocks: int, free: int, now: float) -> Event:
    return {"event": "took", "now": now, "blocks": blocks, "free": free}


def computes(name: str, position: int, now: float) -> Event:
    return {"event": "computed", "now": now, "request": name, "position": position, "stop": ["STOPPED", 7]}


def offers(name: str, position: int, kv: Sequence[int], state: int, free: int, now: float) -> Event:
    where = {"position": position, "kind": "request_end", "state": [state], "kv": [[block] for block in kv]}
    return {"event": "offered", "now": now, "request": name, **where, "free": free}


def frees(*blocks: int) -> Event:
    return {"event": "freed", "blocks": list(blocks)}


def ends(name: str, now: float) -> Event:
    return {"event": "ended", "now": now, "request": name}


def make_log(policy: str = "gds") -> list[Event]:
    """Two states, 15 tokens in five blocks and 3 tokens in two; 8 blocks; then c wants three.

    A token costs a second: 15/5 seconds a block against 3/2. GreedyDual-Size gives b's up, LRU a's, which is older.
    """
    return [
        setup(policy),
        arrives("a", A[:15], 0.0), *starts("a", A[:15], 0, 1.0), takes(5, 8, 1.0),
        computes("a", 15, 2.0), offers("a", 15, [1, 2, 3, 4], 5, 3, 2.0), frees(5, 1, 2, 3, 4), ends("a", 2.0),
        arrives("b", B, 3.0), *starts("b", B, 0, 3.0), takes(2, 3, 3.0),
        computes("b", 3, 4.0), offers("b", 3, [6], 7, 1, 4.0), frees(7, 6), ends("b", 4.0),
        arrives("c", C, 5.0), *starts("c", C, 0, 5.0), takes(3, 1, 5.0),
        {"event": "evicted", "now": 5.0, "position": 3, "tier": "leaf"},
        computes("c", 5, 6.0), frees(8, 9, 10), ends("c", 6.0),
        arrives("a2", A, 7.0), *starts("a2", A, 15, 7.0, held=[15]),
        {"event": "touched", "blocks": [1, 2, 3, 4, 5]}, takes(2, 3, 7.0),
        computes("a2", 18, 8.0), frees(11, 12), frees(1, 2, 3, 4, 5), ends("a2", 8.0),
    ]  # fmt: skip


def write(path: Path, events: Sequence[Event], end: str = "\n") -> Path:
    path.write_text("\n".join(json.dumps(event, separators=(",", ":")) for event in events) + end)
    return path


def find(events: list[Event], kind: str, request: str | None = None) -> Event:
    """The last such event."""
    return [e for e in events if e["event"] == kind and request in (None, e.get("request"))][-1]


def test_every_request_resumes_where_the_log_says(tmp_path: Path) -> None:
    agreement = check_log(write(tmp_path / "log", make_log()))
    assert agreement.first is None
    assert [(start.request, start.simulator) for start in agreement.starts] == [
        *(("a", 0), ("b", 0), ("c", 0), ("a2", 15))
    ]
    assert agreement.simulator_evicted == agreement.engine_evicted != ()
    assert agreement.verdict() == "4 requests, 4 equal; 1 states evicted"
    (counters,) = agreement.counters
    assert (counters.requests, counters.resumed_tokens, counters.ideal_tokens) == (4, 15, 15)


def test_another_policy_does_not_agree(tmp_path: Path) -> None:
    agreement = check_log(write(tmp_path / "log", make_log("lru")))
    assert agreement.equal == 3
    assert str(agreement.first) == ("line 22: eviction 1: engine the leaf at 3, simulator the leaf at 15")
    assert agreement.verdict().splitlines()[0] == "4 requests, 3 equal; 1 states evicted"


@pytest.mark.parametrize(
    ("change", "first"),
    [
        (lambda log: find(log, "started").update(position=11), "where request a2 resumes: engine 11, simulator 15"),
        (lambda log: find(log, "lookup").update(held=[]), "states on the path of request a2: engine [], simu"),
        (lambda log: find(log, "took").update(free=4), "free blocks: engine 4, simulator 3"),
        (lambda log: find(log, "offered").update(free=2), "free blocks: engine 2, simulator 1"),
        (lambda log: log.remove(find(log, "evicted")), "eviction 1: engine none, simulator the leaf at 3"),
        (lambda log: find(log, "arrived", "a2").update(tokens=[*A[:9], 1, *A[10:]]), "on the path of request a2"),
        (lambda log: find(log, "arrived", "a2").update(namespace=1), "states on the path of request a2"),
    ],
)  # fmt: skip
def test_the_first_disagreement_is_named(
    tmp_path: Path, change: Callable[[list[Event]], object], first: str
) -> None:
    change(log := make_log())
    agreement = check_log(write(tmp_path / "log", log))
    assert first in str(agreement.first)


def test_where_vllm_s_own_cache_leads_further_is_given(tmp_path: Path) -> None:
    log = [setup(), arrives("a", A, 0.0), *starts("a", A, 8, 0.0, found=8), ends("a", 1.0)]
    agreement = check_log(write(tmp_path / "log", log))
    assert agreement.verdict() == (
        "1 requests, 1 equal; 1 of them where vLLM's own cache led further; 0 states evicted"
    )


def test_what_grew_is_told_in_part(tmp_path: Path) -> None:
    """An answer's tokens come with the end; the next turn goes on from them."""
    log = make_log()[:6]
    log += [
        {**computes("a", 17, 2.0), "from": 15, "tokens": A[15:17]},
        {**offers("a", 17, [1, 2, 3, 4], 5, 3, 2.0), "kv": [[1], [2], [3], [4], [6]]},
        *(frees(5, 1, 2, 3, 4), ends("a", 2.0)),
        *(arrives("a2", A, 3.0), *starts("a2", A, 17, 3.0, held=[17])),
    ]
    log.insert(5, takes(1, 3, 1.5))
    find(log, "offered")["free"] = 2
    assert check_log(write(tmp_path / "log", log)).verdict() == "2 requests, 2 equal; 0 states evicted"


def test_a_cache_that_was_cleared_and_an_engine_that_began_anew_hold_nothing(tmp_path: Path) -> None:
    log = make_log()
    again = [arrives("a3", A, 9.0), *starts("a3", A, 0, 9.0)]
    assert check_log(write(tmp_path / "kept", log + again)).equal == 4
    assert check_log(write(tmp_path / "cleared", [*log, {"event": "cleared"}, *again])).equal == 5
    agreement = check_log(write(tmp_path / "anew", [*log, setup(), *again]))
    assert (agreement.equal, len(agreement.counters), agreement.first) == (5, 2, None)


def test_a_log_cut_short_agrees_up_to_there(tmp_path: Path) -> None:
    log = make_log()
    for length in range(1, len(log)):
        assert check_log(write(tmp_path / "log", log[:length])).first is None, length


def test_the_line_at_which_an_engine_was_killed_is_left_out(tmp_path: Path) -> None:
    whole, torn = make_log(), '{"event":"took","blo'
    assert (
        check_log(write(tmp_path / "last", whole, end=f"\n{torn}"))
        .verdict()
        .startswith("4 requests, 4 equal")
    )
    both = write(tmp_path / "both", whole, end=f"\n{torn}\n")
    with both.open("a") as file:
        file.write(json.dumps(setup(), separators=(",", ":")) + "\n")
    assert len(check_log(both).counters) == 2


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([], "empty"),
        (["{", '{"event":"ended"}'], "line 1: not JSON"),
        (["[1]"], "line 1: not an event"),
        (['{"event":"ended","request":"a"}'], "line 1: cannot be replayed (no setup before 'ended'"),
        ([json.dumps(setup() | {"version": 9})], "line 1: cannot be replayed (format 9"),
        ([json.dumps(setup("nothing"))], "line 1: cannot be replayed (eviction policy 'nothing'"),
        ([json.dumps(setup()), '{"event":"sang"}'], "line 2: lacks, or knows nothing of, 'sang'"),
        ([json.dumps(setup()), '{"event":"took","blocks":3}'], "line 2: lacks, or knows nothing of, 'free'"),
        ([json.dumps(setup()), json.dumps(ends("a", 0.0)), '{"event":"took","blocks":[],"free":8}'], "line 3"),
        ([json.dumps(setup()), json.dumps(starts("a", A, 0, 0.0)[1])], "line 2: lacks, or knows nothing of, 'a'"),
    ],
)  # fmt: skip
def test_what_is_no_log_is_named_in_one_line(tmp_path: Path, lines: list[str], named: str) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(LogError) as error:
        check_log(log)
    assert named in str(error.value)
    assert "\n" not in str(error.value)
    done = CliRunner().invoke(app, ["check-log", str(log)])
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1


def test_the_command(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good", make_log()), write(tmp_path / "bad", make_log("lru"))
    done = CliRunner().invoke(app, ["check-log", str(good)])
    assert (done.exit_code, done.stdout) == (0, "4 requests, 4 equal; 1 states evicted\n")
    done = CliRunner().invoke(app, ["check-log", str(bad)])
    assert done.exit_code == 1
    assert "first disagreement, line 22: eviction 1" in done.stdout
    done = CliRunner().invoke(app, ["check-log", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert "No such file" in done.stderr


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is not a regular file"):
        check_log(tmp_path)
    done = CliRunner().invoke(app, ["check-log", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (2, f"flashstate: {tmp_path}: is not a regular file\n")
