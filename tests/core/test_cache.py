"""The cache's own bookkeeping: parking, holding, sharing, clearing, counting."""

from __future__ import annotations

from flashstate.core.cache import HybridCache
from flashstate.core.check import check_cache
from flashstate.core.path import Tokens
from flashstate.core.policies import make_policy
from flashstate.core.state import PROMPT_BOUNDARY, Checkpoint
from tests.core.host import Host, conversation

A, B = conversation(1, 100), conversation(2, 100)


def test_lookup_gives_the_deepest_state_within_the_limit() -> None:
    host = Host("gds")
    host.capture(A[:10])
    host.capture(A[:30])
    for limit, position in ((100, 30), (30, 30), (29, 10), (10, 10)):
        state = host.cache.lookup(host.path(A), limit)
        assert state is not None
        assert state.position == position
        assert len(state.kv) == -(-position // 4)
    assert host.cache.lookup(host.path(A), 9) is None
    assert host.cache.lookup(host.path([*A[:20], 5]), 21).position == 10  # type: ignore[union-attr]
    assert host.cache.lookup(host.path(B), 100) is None


def test_equal_tokens_in_unequal_namespaces_never_match() -> None:
    host = Host("gds")
    host.capture(A[:10])
    assert host.cache.lookup(Tokens(A, 4, namespace="salt"), 100) is None
    salted = host.cache.capture(
        Tokens(A, 4, namespace="salt"),
        Checkpoint(4, (901, 902, 903), PROMPT_BOUNDARY),
        [(900,)],
        0.0,
        room=True,
    )
    assert salted.taken == {900, 901, 902, 903}
    check_cache(host.cache, 0.0)


def test_a_state_already_held_is_kept_instead_of_the_new_one() -> None:
    host = Host("lru")
    host.capture(A[:10])
    host.capture(B[:10])
    before = host.unit(A[:10]).checkpoint
    again = host.capture(A[:10], now=5.0)
    assert (again.kept, again.taken, again.freed) == (False, frozenset(), frozenset())
    assert host.unit(A[:10]).checkpoint is before
    # But it counts as a use.
    assert host.unit(A[:10]).last_use_s == 5.0
    victim = host.cache.queue.peek(5.0)
    assert victim is not None
    assert victim[0] is host.unit(B[:10])


def test_states_of_one_path_share_their_blocks() -> None:
    host = Host("gds")
    host.capture(A[:10])
    assert host.cache.resident_blocks == 3 + 3
    got = host.capture(A[:30])
    # Blocks 2 to 7 and a checkpoint; the old, partly filled block 2 is let go.
    assert (len(got.taken), len(got.freed)) == (6 + 3, 1)
    assert host.cache.resident_blocks == 3 + 3 + 8


def test_parking_twice_and_for_two_requests() -> None:
    host = Host("gds")
    host.capture(A[:8])
    host.capture(B[:80])
    cheap, dear = host.unit(A[:8]), host.unit(B[:80])
    for request in ("r", "s", "r"):
        host.cache.park(request, cheap, 0.0)
    assert cheap.parked == 2
    host.cache.unpark("r", 0.0)
    assert host.cache.queue.peek(0.0)[0] is dear  # type: ignore[index]
    host.cache.unpark("s", 0.0)
    host.cache.unpark("s", 0.0)
    assert cheap.parked == 0
    assert host.cache.queue.peek(0.0)[0] is cheap  # type: ignore[index]


def test_a_request_parks_at_one_state_at_a_time() -> None:
    host = Host("gds")
    host.capture(A[:8])
    host.capture(A[:80])
    above, below = host.unit(A[:8]), host.unit(A[:80])
    host.cache.park("r", above, 0.0)
    host.cache.park("r", below, 0.0)
    assert (above.parked, below.parked) == (0, 1)
    host.cache.admit("r", host.path(A), 80, 0.0)
    assert (below.parked, below.is_held) == (0, True)
    host.cache.release("r", 0.0)
    check_cache(host.cache, 0.0)


def test_an_evicted_state_is_forgotten_by_those_parked_at_it() -> None:
    host = Host("gds")
    host.capture(A[:8])
    host.cache.park("r", host.unit(A[:8]), 0.0)
    host.evict()
    check_cache(host.cache, 0.0)
    host.cache.unpark("r", 0.0)
    assert host.resume("r", A) == 0


def test_release_is_idempotent_and_knows_cold_requests() -> None:
    host = Host("gds")
    assert host.resume("cold", A) == 0
    assert host.cache.release("cold", 0.0) == frozenset()
    assert host.cache.release("cold", 0.0) == frozenset()
    assert host.cache.release("never seen", 0.0) == frozenset()


def test_observe_counts_every_token_once() -> None:
    host = Host("gds")
    host.capture(A[:40])
    host.cache.computed("r", host.path(A), 60, 0.0)
    host.cache.observe(host.path(A[:80]), 40)
    counted = host.cache.counters.snapshot()
    assert (counted["prompt_tokens"], counted["resumed_tokens"], counted["ideal_tokens"]) == (80, 40, 60)
    assert counted["missed_tokens"] == {"placement": 20, "capacity": 0, "dependency": 0}
    host.evict()
    host.cache.observe(host.path(A[:80]), 0)
    assert host.cache.counters.missed_tokens == {"placement": 40, "capacity": 40, "dependency": 0}


def test_skips_count_by_reason() -> None:
    host = Host("gds")
    host.cache.skip("token_in_flight")
    host.cache.skip("token_in_flight")
    assert host.cache.counters.snapshot()["captures_skipped"] == {"token_in_flight": 2}


def test_clear_forgets_everything_but_the_counts() -> None:
    host = Host("rollback")
    host.capture(A[:30])
    host.capture(A[:50])
    host.capture(B[:30])
    host.cache.computed("r", host.path(A), 60, 0.0)
    host.resume("running", A)
    host.cache.park("waiting", host.unit(B[:30]), 0.0)
    host.evict()
    assert host.cache.clear() == host.held
    check_cache(host.cache, 1.0)
    assert (len(host.cache), host.cache.resident_blocks) == (0, 0)
    assert host.evict() is None
    assert host.cache.lookup(host.path(A), 100) is None
    assert host.cache.history.precedent(host.path(A), 100).computed == 0
    # Those that still ran or waited end in peace.
    assert host.cache.release("running", 1.0) == frozenset()
    assert host.cache.release("waiting", 1.0) == frozenset()
    host.held.clear()
    host.capture(A[:30])
    check_cache(host.cache, 2.0)
    assert host.cache.counters.captures["request_end"] == 4


def test_misses_cost_what_the_policy_thinks_unless_told_otherwise() -> None:
    policy = make_policy("gds")
    cache = HybridCache(block_tokens=4, policy=policy, history_tokens=100)
    assert cache.cost is policy.settings.cost
