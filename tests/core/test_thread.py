"""Conversations: who runs on them, when they fell silent, whether they were left."""

from __future__ import annotations

import pytest

from flashstate.core.check import check_cache
from flashstate.core.policies import policy_names
from flashstate.core.thread import Thread
from tests.core.host import Host, conversation

A = conversation(1, 100)


def make_thread(end: int = 30) -> Thread:
    """One that request `first` ran from second 0 to 10 and ended after `end` tokens."""
    thread = Thread(0.0).started("first", 20, 0.0)
    thread.ended("first", end, "stop", 10.0)
    return thread


def begin(host: Host, request: str, prompt: list[int], now: float) -> Thread:
    """`request` starts cold; the thread that it runs on."""
    host.cache.learn(request, host.path(prompt), now)
    host.cache.admit(request, host.path(prompt), 0, now)
    return host.cache._threads[request]


def test_a_thread_that_goes_on_runs_again_from_where_it_ended() -> None:
    thread = make_thread()
    assert (thread.running, thread.end, thread.hint, thread.since_s) == (set(), 30, "stop", 10.0)
    assert thread.started("second", 40, 15.0) is thread
    assert (thread.running, thread.prompt_tokens, thread.end, thread.since_s) == ({"second"}, 40, 30, 15.0)
    assert not thread.is_left


def test_a_branch_leaves_a_silent_thread_and_not_a_running_one() -> None:
    silent, running = make_thread(), make_thread().started("second", 40, 12.0)
    for thread, is_left, since in ((silent, True, 15.0), (running, False, 12.0)):
        branch = thread.branched("other", 25, 15.0)
        assert branch is not thread
        assert (branch.running, branch.prompt_tokens, branch.end, branch.is_left) == (
            {"other"},
            25,
            30,
            False,
        )
        assert (thread.is_left, thread.since_s) == (is_left, since)
        assert "other" not in thread.running


def test_a_request_that_is_gone_without_an_end_leaves_the_end_as_it_was() -> None:
    thread = make_thread().started("second", 40, 12.0)
    assert not thread.stopped("third", 13.0)
    assert thread.stopped("second", 14.0)
    assert not thread.stopped("second", 15.0)
    assert (thread.running, thread.end, thread.hint, thread.since_s) == (set(), 30, "stop", 14.0)


@pytest.mark.parametrize("policy", policy_names())
@pytest.mark.parametrize("computes", [True, False])
def test_nothing_runs_after_release(policy: str, computes: bool) -> None:
    """Finished, aborted, preempted: with an end or without one, and the eviction order is right at any time after."""
    host = Host(policy)
    thread = begin(host, "a", A[:20], 1.0)
    host.capture(A[:19], 2.0, request="a")
    beside = begin(host, "b", A[:12], 3.0)
    if computes:
        host.cache.computed("a", host.path(A[:24]), 24, 4.0, ("PREEMPTED", 7))
    host.cache.release("a", 4.0)
    host.cache.release("a", 4.0)
    assert (thread.running, thread.since_s) == (set(), 4.0)
    assert beside.running == {"b"}
    for now in (4.0, 5.0, 70.0, 5000.0):
        host.cache.queue.peek(now)
        check_cache(host.cache, now)
    host.cache.release("b", 80.0)
    assert not beside.running
    assert not host.cache._threads


@pytest.mark.parametrize("policy", ["rollback", "hazard", "forecast"])
def test_a_preempted_request_goes_on_with_its_own_thread(policy: str) -> None:
    host = Host(policy)
    thread = begin(host, "a", A[:20], 1.0)
    host.cache.computed("a", host.path(A[:24]), 24, 2.0, ("PREEMPTED", 7))
    host.capture(A[:24], 2.0, request="a")
    host.cache.release("a", 2.0)
    assert host.cache.learn("a", host.path(A[:25]), 3.0) is None
    assert host.cache._threads["a"] is thread
    assert (thread.running, thread.end, thread.prompt_tokens) == ({"a"}, 24, 25)
    assert not thread.is_left


def test_clearing_forgets_who_runs() -> None:
    host = Host("forecast")
    begin(host, "a", A[:20], 1.0)
    host.cache.clear()
    assert not host.cache._threads
    host.cache.computed("a", host.path(A[:22]), 22, 2.0)
    host.cache.release("a", 2.0)
    assert begin(host, "b", A[:30], 3.0).running == {"b"}
