"""Sizes that leave out what a running request needs: each is what its eviction frees."""

from __future__ import annotations

from random import Random

import pytest

from flashstate.core.cache import HybridCache
from flashstate.simulate.live_sizes import LiveSizes
from flashstate.simulate.rules import Rules
from flashstate.simulate.run import play
from flashstate.simulate.systems import systems
from tests.simulate.sessions import make_geometry, make_workload

RULES = Rules(sessions=4, duration_s=400.0, warmup_s=0.0, spread_s=20.0)


@pytest.mark.parametrize("seed", range(4))
def test_a_size_is_what_an_eviction_frees(seed: int) -> None:
    geometry, random = make_geometry(blocks=200), Random(seed)
    played = play(make_workload(seed=seed).trajectories, RULES, geometry)
    engine = systems()["gds-live"].build(geometry, played.requests)
    cache, pool, smaller, evicted = engine.cache, engine.pool, 0, 0
    assert isinstance(cache, HybridCache)
    sizes = cache.policy
    assert isinstance(sizes, LiveSizes)
    for now, is_end, request in played.events:
        if is_end:
            engine.end(request, now)
        else:
            engine.start(request, now)
        if random.random() < 0.5 and (front := cache.queue.peek(now)) is not None:
            unit, free = front[0], pool.free
            size = sizes.size(unit)
            smaller += size < unit.size_blocks
            victim = cache.evict(now)
            assert victim is not None
            pool.let_go(victim.freed)
            assert pool.free - free == size
            evicted += 1
    assert smaller > 0, "no state had a running request below it"
    assert evicted > 10
