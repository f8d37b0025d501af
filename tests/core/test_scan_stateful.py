"""Every policy: what is evicted is what a scan of all ranks would pick, through whole lives of requests."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flashstate.core.cache import HybridCache
from flashstate.core.check import check_cache
from flashstate.core.path import Tokens
from flashstate.core.policies import PolicySettings, make_policy, policy_names
from flashstate.core.queue import EvictionQueue
from flashstate.core.state import PROMPT_END, REQUEST_END, Checkpoint
from tests.core.host import ONE_SECOND_A_TOKEN

BLOCK = 4
extension = st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple)


class LifeMachine(RuleBasedStateMachine):
    policy_name = ""

    @initialize()
    def start(self) -> None:
        policy = make_policy(self.policy_name, PolicySettings(cost=ONE_SECOND_A_TOKEN, leaf_idle_s=7.0))
        self.cache = HybridCache(block_tokens=BLOCK, policy=policy, history_tokens=10**9)
        self.ids, self.numbers, self.now = count(), count(), 0.0
        self.ended: list[tuple[int, ...]] = [()]
        self.running: dict[str, tuple[int, ...]] = {}
        self.waiting: dict[str, tuple[int, ...]] = {}

    @rule(data=st.data(), turns_back=st.integers(0, 3), exports=st.booleans())
    def begin(self, data: st.DataObject, turns_back: int, exports: bool) -> None:
        base = data.draw(st.sampled_from(self.ended[-8:]))
        prompt = base[: max(len(base) - turns_back, 0)] + data.draw(extension)
        self.run(f"r{next(self.numbers)}", prompt, exports)

    def run(self, request: str, prompt: tuple[int, ...], exports: bool) -> None:
        path = Tokens(prompt, BLOCK)
        state = self.cache.lookup(path, len(prompt) - 1)
        resumed = state.position if state else 0
        self.cache.observe(path, resumed)
        self.cache.learn(request, path, self.now)
        self.cache.admit(request, path, resumed, self.now)
        if exports and resumed < len(prompt) - 1:
            self.offer(request, prompt[:-1], PROMPT_END)
        self.running[request] = prompt

    @precondition(lambda self: self.running)
    @rule(data=st.data(), output=extension, hint=st.sampled_from(["tool_use", "end_turn", None]))
    def end(self, data: st.DataObject, output: tuple[int, ...], hint: str | None) -> None:
        request = data.draw(st.sampled_from(sorted(self.running)))
        tokens = self.running.pop(request) + output
        self.cache.computed(request, Tokens(tokens, BLOCK), len(tokens), self.now, hint)
        self.offer(request, tokens, REQUEST_END)
        self.cache.release(request, self.now)
        self.ended.append(tokens)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[request]
        self.cache.release(request, self.now)

    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        prompt = (*data.draw(st.sampled_from(self.ended[-8:])), 1)
        state = self.cache.lookup(Tokens(prompt, BLOCK), len(prompt) - 1)
        if state is not None:
            request = f"r{next(self.numbers)}"
            self.cache.park(request, state.unit, self.now)
            self.waiting[request] = prompt

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), gives_up=st.booleans())
    def leave_queue(self, data: st.DataObject, gives_up: bool) -> None:
        request = data.draw(st.sampled_from(sorted(self.waiting)))
        prompt = self.waiting.pop(request)
        if gives_up:
            self.cache.unpark(request, self.now)
        else:
            self.run(request, prompt, exports=False)

    def offer(self, request: str, tokens: tuple[int, ...], kind: str) -> None:
        kv = [(next(self.ids),) for _ in range(-(-len(tokens) // BLOCK))]
        checkpoint = Checkpoint(len(tokens), (next(self.ids), next(self.ids)), kind)
        self.cache.capture(Tokens(tokens, BLOCK), checkpoint, kv, self.now, room=True, request=request)

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 8.0, 64.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def peek(self) -> None:
        """Sometimes without evicting: what is put right on the way must stay right."""
        free = [unit for unit in self.cache.units() if not unit.is_held]
        # A policy that weighs all units anew at an eviction would make these ranks stale: none does.
        rank = self.cache.policy.rank
        scan = min(
            (unit for unit in free if not unit.parked),
            key=lambda unit: (rank(unit, self.now), unit.serial),
            default=max(free, key=lambda unit: unit.park_serial, default=None),
        )
        found = self.cache.queue.peek(self.now)
        assert found == (None if scan is None else (scan, rank(scan, self.now)))

    @rule()
    def evict(self) -> None:
        self.peek()
        held = len(self.cache)
        assert (self.cache.evict(self.now) is None) == (held == 0)

    @rule(data=st.data())
    def learn_much(self, data: st.DataObject) -> None:
        """Enough like requests in a row for a policy that learns to publish."""
        path = Tokens((*data.draw(st.sampled_from(self.ended[-4:])), 2), BLOCK)
        for _ in range(33):
            self.cache.learn("many", path, self.now)
            self.cache.release("many", self.now)

    @invariant()
    def consistent(self) -> None:
        if not hasattr(self, "cache"):
            return
        check_cache(self.cache, self.now)
        threads = {id(t): t for u in self.cache.units() if (t := u.thread) is not None}
        for thread in threads.values():
            assert thread.running <= set(self.running), thread.running
            assert all(unit.thread is thread and unit in self.cache.queue for unit in thread.units)


@pytest.mark.parametrize("examples", [30, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", policy_names())
def test_the_victim_is_what_a_scan_finds(name: str, examples: int) -> None:
    machine = type(f"Life_{name}", (LifeMachine,), {"policy_name": name})
    run = settings(
        max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvictionQueue, "SLACK", 0)
        run_state_machine_as_test(machine, settings=run)
