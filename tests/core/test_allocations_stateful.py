"""`AllocationCache` against a brute-force model, through whole lives of requests."""

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

from flashstate.core.allocations import AllocationCache
from flashstate.core.check import check_history
from flashstate.core.path import Tokens
from flashstate.core.shelves import State
from flashstate.core.state import CHUNK_END, REQUEST_END, Checkpoint
from tests.core.allocation_model import AllocationModel, Prefix

CHECKPOINT_BLOCKS = 2
extension = st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple)


class AllocationMachine(RuleBasedStateMachine):
    @initialize(block=st.sampled_from([1, 3, 4]))
    def start(self, block: int) -> None:
        self.block = block
        self.cache = AllocationCache(block_tokens=block, history_tokens=10**9)
        self.model = AllocationModel(block)
        self.ids, self.numbers = count(), count()
        self.ended: list[Prefix] = [()]
        self.running: dict[str, tuple[Prefix, list[tuple[int]]]] = {}
        self.held: set[int] = set()
        self.contents: dict[int, Prefix] = {}

    def path(self, tokens: Prefix) -> Tokens:
        return Tokens(tokens, self.block)

    def applies(self, taken: frozenset[int], freed: frozenset[int]) -> None:
        assert not taken & self.held, taken & self.held
        assert freed <= self.held, freed - self.held
        self.held = (self.held | taken) - freed

    @rule(data=st.data(), back=st.integers(0, 4), output=extension)
    def begin(self, data: st.DataObject, back: int, output: Prefix) -> None:
        base = data.draw(st.sampled_from(self.ended[-8:]))
        self.run(data, base[: max(len(base) - back, 0)] + data.draw(extension), output)

    @rule(data=st.data(), back=st.integers(0, 4), output=extension)
    def join(self, data: st.DataObject, back: int, output: Prefix) -> None:
        """A request that shares a prefix with one that still runs."""
        tokens = [tokens for tokens, _ in self.running.values()] or [(0, 1)]
        base = data.draw(st.sampled_from(tokens))
        self.run(data, (*base[: max(len(base) - back, 0)], data.draw(st.integers(0, 2))), output)

    def run(self, data: st.DataObject, prompt: Prefix, output: Prefix) -> None:
        request, limit = f"r{next(self.numbers)}", len(prompt) - 1
        tokens, path = prompt + output, self.path(prompt)
        expected = self.model.deepest(prompt, limit)
        state = self.cache.lookup(path, limit)
        resumed = len(expected.tokens) if expected is not None else 0
        assert (state.position if state is not None else 0) == resumed
        kv = self.cache.resident(path, limit)
        assert kv == [block.physical for block in self.model.run(prompt, limit)]
        if state is not None:
            assert state.is_open == (self.model.open_block(prompt[:resumed]) is not None)
            self.check_kv(prompt[:resumed], state.kv)
            if state.is_open and len(state.kv) > len(kv):
                kv.append(state.kv[-1])
        attribution = self.cache.observe(path, resumed)
        assert attribution.missed_tokens == self.model.misses(prompt, resumed), prompt
        assert resumed + sum(attribution.missed_tokens.values()) == attribution.ideal_tokens
        self.cache.admit(request, path, resumed, 0.0)
        self.model.admit(request, prompt, resumed)
        kv += [(next(self.ids),) for _ in range(-(-len(tokens) // self.block) - len(kv))]
        for i, (block,) in enumerate(kv):
            self.contents[block] = tokens[: (i + 1) * self.block]
        self.running[request] = tokens, kv
        spots = (
            st.lists(st.integers(resumed + 1, limit), max_size=3, unique=True) if resumed < limit else None
        )
        for position in data.draw(spots) if spots is not None else ():
            self.offer(request, position, CHUNK_END)

    def offer(self, request: str, position: int, kind: str) -> None:
        tokens, kv = self.running[request]
        physical = tuple(next(self.ids) for _ in range(CHECKPOINT_BLOCKS))
        part = kv[: -(-position // self.block)]
        checkpoint = Checkpoint(position, physical, kind)
        got = self.cache.capture(self.path(tokens), checkpoint, part, 0.0, room=False, request=request)
        self.model.file(request, tokens, position, part, ends_here=True)
        assert got.kept == self.model.capture(tokens[:position], physical)
        self.applies(got.taken, got.freed)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), keeps_end=st.booleans())
    def end(self, data: st.DataObject, keeps_end: bool) -> None:
        request = data.draw(st.sampled_from(sorted(self.running)))
        tokens, kv = self.running[request]
        if keeps_end:
            self.offer(request, len(tokens), REQUEST_END)
        got = self.cache.file_kv(self.path(tokens), len(tokens), kv, 0.0, request=request)
        self.model.file(request, tokens, len(tokens), kv, ends_here=False)
        self.applies(got.taken, got.freed)
        self.cache.computed(request, self.path(tokens), len(tokens), 0.0)
        self.model.computed.append(tokens)
        self.ended.append(tokens)
        self.leave(request)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        self.leave(data.draw(st.sampled_from(sorted(self.running))))

    def leave(self, request: str) -> None:
        del self.running[request]
        assert self.cache.release(request, 0.0) == frozenset()
        self.model.release(request)

    @rule(blocks=st.integers(1, 12))
    def evict(self, blocks: int) -> None:
        """Pressure."""
        freed = 0
        while freed < blocks:
            victim, got = self.model.evict(), self.cache.evict(0.0)
            assert (victim is None) == (got is None)
            if victim is None or got is None:
                return
            assert (got.position, got.freed) == (len(victim.tokens), set(victim.physical))
            assert got.tier == ("kv" if victim.is_kv else "checkpoint")
            self.applies(frozenset(), got.freed)
            freed += len(got.freed)

    def check_kv(self, tokens: Prefix, kv: tuple[tuple[int, ...], ...]) -> None:
        assert len(kv) == -(-len(tokens) // self.block)
        for i, (block,) in enumerate(kv):
            needed = tokens[: (i + 1) * self.block]
            assert block in self.held
            assert self.contents[block][: len(needed)] == needed, (block, needed)

    @invariant()
    def consistent(self) -> None:
        if not hasattr(self, "cache"):
            return
        kept = self.model.kept()
        blocks = [block for k in kept for block in k.physical]
        assert len(blocks) == len(set(blocks)) == self.cache.resident_blocks
        assert self.held == set(blocks)
        assert len(list(self.cache.allocations())) == len(kept)
        order = [(k.stop, isinstance(k, State)) for k in self.cache._queue]
        free = sorted((k for k in kept if not (k.is_kv and self.model.is_used(k))), key=lambda k: k.order)
        assert order == [(len(k.tokens), not k.is_kv) for k in free]
        check_history(self.cache.history)

    def teardown(self) -> None:
        """Nothing is left behind once all has ended and gone."""
        if not hasattr(self, "cache"):
            return
        for request in list(self.running):
            self.leave(request)
        self.evict(10**9)
        assert not self.held
        assert self.cache.resident_blocks == 0
        assert not self.cache._spaces


@pytest.mark.parametrize("examples", [100, pytest.param(600, marks=pytest.mark.slow)])
def test_cache_equals_brute_force(examples: int) -> None:
    run = settings(
        max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(AllocationMachine, settings=run)
