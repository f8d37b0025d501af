"""The cache against a brute-force model: victims, what they free, what prefixes may resume from, misses."""

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
from flashstate.core.cost import PrefillCostModel
from flashstate.core.path import Tokens
from flashstate.core.policies import PolicySettings, make_policy
from flashstate.core.queue import EvictionQueue
from flashstate.core.state import Checkpoint, RecoveryUnit
from flashstate.core.tree import Node
from tests.core.model import Model

MODELLED = ("gds", "keep-superseded", "leaf-last", "lru", "rollback")
"""Policies whose ranks the model works out by itself; test_scan_stateful.py takes every policy at its word."""
COST = PrefillCostModel(d=1.0, e=50.0)
CHECKPOINT_BLOCKS = 3
extension = st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple)


class CacheMachine(RuleBasedStateMachine):
    policy_name = ""

    @initialize(data=st.data(), block=st.sampled_from([1, 3, 4]), width=st.sampled_from([1, 2]))
    def start(self, data: st.DataObject, block: int, width: int) -> None:
        policy_settings = PolicySettings(cost=COST, leaf_idle_s=7.0, keep_superseded_turns=1)
        self.cache = HybridCache(
            block_tokens=block,
            kv_width=width,
            policy=make_policy(self.policy_name, policy_settings),
            history_tokens=10**9,
        )
        self.model = Model(self.policy_name, block, width, CHECKPOINT_BLOCKS, COST, 7.0, 1)
        self.block, self.width, self.now = block, width, 0.0
        self.ids, self.requests = count(), count()
        self.known: list[tuple[int, ...]] = [()]
        self.held_blocks: set[int] = set()
        self.contents: dict[int, tuple[int, ...]] = {}
        self.sync_table()
        # Never from nothing: Hypothesis leaves whole rules out of a run, captures included.
        for _ in range(3):
            self.talk_on(data, 2)

    def sync_table(self) -> None:
        self.model.table = getattr(self.cache.policy, "_published", ())

    def prefix(self, data: st.DataObject) -> tuple[int, ...]:
        base = data.draw(st.sampled_from(self.known[-12:]))
        # Half of all turns continue exactly, or paths of many states would be rare.
        keep = st.one_of(st.just(len(base)), st.integers(0, len(base)))
        return base[: data.draw(keep)] + data.draw(extension)

    def path(self, tokens: tuple[int, ...]) -> Tokens:
        return Tokens(tokens, self.block)

    def host_blocks(self, tokens: tuple[int, ...]) -> list[tuple[int, ...]]:
        kv = []
        for i in range(-(-len(tokens) // self.block)):
            ids = tuple(next(self.ids) for _ in range(self.width))
            self.contents.update(dict.fromkeys(ids, tokens[: (i + 1) * self.block]))
            kv.append(ids)
        return kv

    def applies(self, taken: frozenset[int], freed: frozenset[int]) -> None:
        assert not taken & self.held_blocks, taken & self.held_blocks
        assert freed <= self.held_blocks | taken, freed - self.held_blocks
        self.held_blocks = (self.held_blocks | taken) - freed

    @rule(data=st.data(), room=st.booleans(), kind=st.sampled_from(["request_end", "prompt_boundary"]))
    def capture(self, data: st.DataObject, room: bool, kind: str) -> None:
        self.offer(self.prefix(data), room, kind)

    @rule(data=st.data(), turns=st.integers(2, 3))
    def talk(self, data: st.DataObject, turns: int) -> None:
        """Turn after turn of one conversation."""
        self.talk_on(data, turns)

    def talk_on(self, data: st.DataObject, turns: int) -> None:
        tokens = self.prefix(data)
        for _ in range(turns):
            self.offer(tokens, True, "request_end")
            tokens += data.draw(extension)

    def offer(self, tokens: tuple[int, ...], room: bool, kind: str) -> None:
        self.known.append(tokens)
        checkpoint = Checkpoint(len(tokens), tuple(next(self.ids) for _ in range(CHECKPOINT_BLOCKS)), kind)
        got = self.cache.capture(self.path(tokens), checkpoint, self.host_blocks(tokens), self.now, room=room)
        assert got.kept == self.model.capture(tokens, kind, self.now, room)
        self.applies(got.taken, got.freed)

    @rule(data=st.data())
    def computed(self, data: st.DataObject) -> None:
        tokens = self.prefix(data)
        self.known.append(tokens)
        request, path = f"r{next(self.requests)}", self.path(tokens)
        self.cache.learn(request, path, self.now)
        self.sync_table()
        self.cache.computed(request, path, len(tokens), self.now)
        self.cache.release(request, self.now)
        self.model.computed.append(tokens)

    @precondition(lambda self: self.model.states)
    @rule()
    def evict(self) -> None:
        expected = self.model.evict(self.now)
        got = self.cache.evict(self.now)
        assert (got is None) == (expected is None), (got, expected)
        if got is not None and expected is not None:
            state, freed = expected
            assert (got.position, len(got.freed)) == (len(state.tokens), freed), state.tokens
            self.applies(frozenset(), got.freed)

    @precondition(lambda self: sum(state.held > 0 for state in self.model.states.values()) > 1)
    @rule()
    def evict_into_held(self) -> None:
        """Pressure until a state goes that a running request resumed from."""
        while any(not state.held for state in self.model.states.values()):
            self.evict()
        self.evict()

    @rule(data=st.data(), park=st.booleans())
    def arrive(self, data: st.DataObject, park: bool) -> None:
        # Most requests find a state.
        found = sorted(self.model.states)
        tokens = (
            (*data.draw(st.sampled_from(found)), 0)
            if found and data.draw(st.booleans())
            else self.prefix(data)
        )
        path, limit = self.path(tokens), len(tokens) - 1
        request = f"r{next(self.requests)}"
        resumed = self.model.resumable(tokens, limit)
        state = self.cache.lookup(path, limit)
        assert (state.position if state else 0) == resumed
        if state is not None:
            self.check_kv(tokens, resumed, state.kv, state.checkpoint.blocks)
            if park:
                self.cache.park(request, state.unit, self.now)
                self.model.parks[request] = self.model.states[tokens[:resumed]]
                self.model.park(self.model.parks[request])
                return
        self.run(request, tokens, resumed)

    def run(self, request: str, tokens: tuple[int, ...], resumed: int) -> None:
        path = self.path(tokens)
        before = self.cache.counters.snapshot()["missed_tokens"]
        attribution = self.cache.observe(path, resumed)
        assert attribution.missed_tokens == self.model.misses(tokens, resumed), tokens
        assert resumed + sum(attribution.missed_tokens.values()) == attribution.ideal_tokens
        after = self.cache.counters.snapshot()["missed_tokens"]
        assert {r: after[r] - before[r] for r in after} == attribution.missed_tokens
        self.cache.learn(request, path, self.now)
        self.sync_table()
        self.cache.admit(request, path, resumed, self.now)
        if resumed:
            self.model.holds[request] = tokens[:resumed]
            state = self.model.states[tokens[:resumed]]
            state.held += 1
            self.model.use(state, self.now)

    @rule(data=st.data())
    def learn_much(self, data: st.DataObject) -> None:
        """Enough like requests in a row for a policy that learns to publish."""
        path = self.path(self.prefix(data))
        for _ in range(33):
            self.cache.learn("r", path, self.now)
        self.sync_table()

    @precondition(lambda self: self.model.parks)
    @rule(data=st.data(), admitted=st.booleans())
    def leave_queue(self, data: st.DataObject, admitted: bool) -> None:
        request = data.draw(st.sampled_from(sorted(self.model.parks)))
        state = self.model.parks.pop(request)
        state.parked -= 1
        if admitted:
            self.run(request, (*state.tokens, 0), len(state.tokens))
        else:
            self.cache.unpark(request, self.now)

    @rule(data=st.data())
    def share_blocks_only(self, data: st.DataObject) -> None:
        """A request that resumed at a block boundary the host found by itself."""
        tokens = self.prefix(data)
        filed = max((self.model.common(tokens, s) for s in self.model.states), default=0)
        aligned = filed // self.block * self.block
        if aligned and tokens[:aligned] not in self.model.states:
            request = f"r{next(self.requests)}"
            self.cache.admit(request, self.path(tokens), aligned, self.now)
            self.model.holds[request] = tokens[:aligned]

    @precondition(lambda self: self.model.holds)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.model.holds)))
        tokens = self.model.holds.pop(request)
        state = self.model.states.get(tokens)
        if state is not None:
            state.held -= 1
            self.model.use(state, self.now)
        self.applies(frozenset(), self.cache.release(request, self.now))

    @rule(seconds=st.sampled_from([0.5, 3.0, 8.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def check_kv(
        self, tokens: tuple[int, ...], n: int, kv: tuple[tuple[int, ...], ...], state: tuple[int, ...]
    ) -> None:
        assert len(kv) == -(-n // self.block)
        for i, ids in enumerate(kv):
            needed = tokens[: min(n, (i + 1) * self.block)]
            for block in ids:
                assert block in self.held_blocks, block
                assert self.contents[block][: len(needed)] == needed, (block, needed)
                assert len(self.contents[block]) <= (i + 1) * self.block, (block, i)
        assert set(state) <= self.held_blocks

    @invariant()
    def consistent(self) -> None:
        if not hasattr(self, "cache"):
            return
        check_cache(self.cache, self.now)
        assert self.cache.resident_blocks == len(self.held_blocks) == self.model.resident_blocks()
        assert len(self.cache) == len(self.model.states)
        by_use = sorted(self.cache.units(), key=lambda unit: unit.use_serial)
        expected = sorted(self.model.states.values(), key=lambda state: state.use_order)
        assert [self.tokens_of(unit.node) for unit in by_use] == [state.tokens for state in expected]
        for unit in self.cache.units():
            self.same_figures(unit)

    def same_figures(self, unit: RecoveryUnit) -> None:
        tokens = self.tokens_of(unit.node)
        state, model = self.model.states[tokens], self.model
        assert unit.fallback == model.fallback(state), tokens
        assert unit.tier == model.tier(state), tokens
        assert (unit.stamp, unit.last_use_s) == (state.stamp, state.last_use), tokens
        if self.policy_name == "rollback":
            assert unit.path_end == state.path_end, tokens
        if self.policy_name == "keep-superseded":
            assert unit.turns_above == state.turns_above, tokens
        # What a held state would free, and so its rank, is never asked.
        if not state.held:
            assert unit.size_blocks == model.size(state), tokens
            assert self.policy_name == "lru" or self.cache.policy.rank(unit, self.now) == model.rank(
                state, self.now
            ), tokens

    @staticmethod
    def tokens_of(node: Node[RecoveryUnit]) -> tuple[int, ...]:
        chain = [node, *node.ancestors()]
        return tuple(t for link in reversed(chain) for t in link.piece.ids)


@pytest.mark.parametrize("examples", [40, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MODELLED)
def test_cache_equals_brute_force(name: str, examples: int) -> None:
    machine = type(f"Cache_{name}", (CacheMachine,), {"policy_name": name})
    run = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    # Few states make few stale entries: clean up from the first on.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvictionQueue, "SLACK", 0)
        run_state_machine_as_test(machine, settings=run)
