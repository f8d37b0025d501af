"""A session that says it has ended: what only it used is gone, what others go on from stays."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from flashstate.core.path import Tokens
from tests.core.test_scan_stateful import BLOCK, LifeMachine


class EndingMachine(LifeMachine):
    """Lives of requests, where some are their session's last."""

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end_for_good(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.running)))
        tokens = self.running.pop(request)
        thread = self.cache._threads[request]
        mine = set(thread.units)
        before = {unit: unit.checkpoint.blocks for unit in self.cache.units()}
        self.cache.computed(request, Tokens(tokens, BLOCK), len(tokens), self.now)
        freed = self.cache.end_session(request, self.now)
        left = set(self.cache.units())
        gone = before.keys() - left
        assert gone <= mine
        assert {block for unit in gone for block in before[unit]} <= freed
        assert not thread.running & set(self.running)
        for unit in mine & left:
            # Still there for a reason: others run from it, wait for it, or went on below it.
            assert thread.running or unit.is_held or unit.parked or unit.below[0], unit.position
        assert not self.cache.end_session(request, self.now)
        self.ended.append(tokens)


@pytest.mark.parametrize("examples", [30, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["forecast", "rollback", "lru"])
def test_an_ended_session_leaves_only_what_others_use(name: str, examples: int) -> None:
    machine = type(f"Ending_{name}", (EndingMachine,), {"policy_name": name})
    run = settings(
        max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=run)
