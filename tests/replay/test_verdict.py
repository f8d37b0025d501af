from __future__ import annotations

from typing import Any

import pytest

from flashstate.replay.record import Record
from flashstate.replay.run_log import Event
from flashstate.replay.totals import Totals, summary
from flashstate.replay.verdict import reasons
from flashstate.replay.watch import Watch, counters

PARAMETERS: dict[str, Any] = {"measure_s": 10.0, "max_failed_percent": 5.0, "chat": False}


def make_request(measured: bool = True, **fields: Any) -> Event:
    record = {
        "kind": "extends", "prompt_tokens": 100, "cached_tokens": 80, "ideal_tokens": 90, "output_tokens": 5,
        "ttft_s": 0.5, "e2e_s": 2.0, "start_s": 1.0, "end_s": 3.0, "error": None,
    }  # fmt: skip
    return {"event": "request", "measured": measured, "says_cached": True} | record | fields


def make_closed(s: float = 12.0, stopped: str | None = None, restarts: int = 0, over: bool = False) -> Event:
    return {
        "event": "closed",
        "s": s,
        "over": over,
        "stopped": stopped,
        "restarts": restarts,
        "missed_tokens": None,
        "client_late_s": 0.01,
    }


def make_totals(*events: Event, opened: float = 2.0) -> Totals:
    totals = Totals()
    for event in ({"event": "started"}, {"event": "opened", "s": opened}, *events):
        totals.take(event)
    return totals


def verdict(*events: Event) -> list[str]:
    return reasons(make_totals(*events), PARAMETERS)


def test_a_run_as_asked_is_valid() -> None:
    assert verdict(make_request(), make_closed()) == []


def test_every_reason_is_said_at_once() -> None:
    failed = make_request(error="stall: nothing for 9 s", ttft_s=None)
    found = verdict(failed, make_closed(7.0, "interrupted", restarts=2))
    assert found == [
        "5.0 of 10 s were measured: interrupted",
        "no request was answered in the measured time",
        "100.0% of the measured requests failed, 5% may: stall 1 (such as stall: nothing for 9 s)",
        "a server restarted 2 times during the run",
    ]


def test_work_with_an_end_is_measured_to_it() -> None:
    assert verdict(make_request(), make_closed(5.0, over=True)) == [
        "3.0 of 10 s were measured: the work was over"
    ]
    whole = PARAMETERS | {"measure_s": None}
    assert reasons(make_totals(make_request(), make_closed(5.0, over=True)), whole) == []
    (why,) = reasons(make_totals(make_request(), make_closed(50.0, "interrupted")), whole)
    assert why == "not all the work was done: interrupted"
    (why,) = reasons(make_totals(make_request()), whole)  # killed
    assert why == "not all the work was done"


def test_as_many_may_fail_as_was_said() -> None:
    failed = make_request(error="http 500: no")
    assert verdict(failed, *[make_request()] * 19, make_closed()) == []
    assert len(verdict(failed, failed, *[make_request()] * 19, make_closed())) == 1
    # What failed in the warm-up is counted apart.
    assert verdict(failed | {"measured": False}, make_request(), make_closed()) == []


def test_parts_add_up_and_only_the_last_one_says_why_it_ended() -> None:
    totals = make_totals(make_request(), make_closed(6.0, "interrupted"))
    assert totals.measured_s == 4.0
    for event in ({"event": "started"}, {"event": "opened", "s": 3.0}, make_request(), make_closed(9.0)):
        totals.take(event)
    assert totals.measured_s == 10.0
    assert reasons(totals, PARAMETERS) == []
    assert summary(totals, PARAMETERS, [])["parts"] == 2


def test_a_part_that_was_killed_counts_to_its_last_request() -> None:
    assert make_totals(make_request(end_s=3.0), make_request(end_s=8.0)).measured_s == 6.0


def test_figures_are_of_the_answered_requests_in_the_window() -> None:
    totals = make_totals(
        make_request(measured=False, prompt_tokens=10**6),
        make_request(),
        make_request(cached_tokens=20, ttft_s=1.5, e2e_s=4.0),
        make_request(error="dropped: gone", prompt_tokens=10**6),
        make_closed(),
    )
    found = summary(totals, PARAMETERS, [])
    assert found["prompt_tokens_per_s"] == 20.0
    assert found["output_tokens_per_s"] == 1.0
    assert (found["hit_rate"], found["ideal_hit_rate"]) == (0.5, 0.9)
    assert found["ttft_s"] == {"p50": 1.0, "p90": 1.4}
    assert found["latency_s"] == {"p50": 3.0, "p90": 3.8}
    assert found["errors"] == {"dropped": 1}
    assert found["requests"] == {
        "measured": 3, "answered": 2, "failed": 1, "outside": 1, "failed_outside": 0, "edits": 0
    }  # fmt: skip


def test_a_rate_that_nobody_counted_is_not_zero() -> None:
    silent = make_totals(make_request(says_cached=False, cached_tokens=0), make_closed())
    assert summary(silent, PARAMETERS, [])["hit_rate"] is None
    assert summary(silent, PARAMETERS | {"chat": True}, [])["ideal_hit_rate"] is None
    empty = summary(Totals(), PARAMETERS, ["nothing"])
    assert (empty["verdict"], empty["ttft_s"], empty["prompt_tokens_per_s"]) == ("invalid", None, None)


def make_record(error: str | None = None) -> Record:
    return Record("s", 0, "first", 9, 0, 0, 1, None, 1.0, 0.0, 1.0, error)


def test_a_server_that_answers_nothing_is_gone_after_a_while() -> None:
    watch = Watch("http://a")
    watch.saw(make_record("stall: nothing"), 10.0)
    watch.saw(make_record("http 500: no"), 14.0)
    assert watch.gone(5.0) is None
    watch.saw(make_record("http 500: no"), 15.0)
    assert watch.gone(5.0) == "http://a answered nothing for 5 s, last: http 500: no"
    watch.saw(make_record(), 16.0)
    assert watch.gone(5.0) is None
    # One failure, and nothing asked for long after.
    watch.saw(make_record("short: 3 of 9 tokens"), 20.0)
    assert watch.gone(5.0) is None
    assert watch.restarts == 0


def test_whoever_answers_after_nobody_listened_is_another_process() -> None:
    watch = Watch("http://a")
    for error in ("refused: no", "refused: no", None, None, "dropped: x", None):
        watch.saw(make_record(error), 1.0)
    assert watch.restarts == 1


@pytest.mark.parametrize(("after", "restarts"), [(7, 0), (8, 0), (6, 1)])
def test_counters_that_fall_are_of_another_process(after: int, restarts: int) -> None:
    def page(value: int) -> dict[str, float]:
        text = f'# TYPE a_total counter\na_total{{b="c"}} {value}\n# TYPE g gauge\ng {10 - value}\n'
        return dict(counters(text))

    watch = Watch("http://a")
    watch.compare(page(7))
    watch.compare(None)
    watch.compare(page(after))
    assert watch.restarts == restarts
