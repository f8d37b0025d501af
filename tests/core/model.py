"""A brute-force model of the cache: sets of prefixes, everything recomputed from the definitions each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from flashstate.core.cost import PrefillCostModel
from flashstate.core.policies.rollback import at_most

Prefix = tuple[int, ...]


@cache
def blocks_of(prefix: Prefix, block: int) -> tuple[frozenset[Prefix], frozenset[Prefix]]:
    """Blocks of a prefix, each by all tokens up to its end, and every emptier block that one of them can replace."""
    starts = range(0, len(prefix), block)
    contents = frozenset(prefix[: start + block] for start in starts)
    shorter = frozenset(
        prefix[:n] for start in starts for n in range(start + 1, min(start + block, len(prefix)))
    )
    return contents, shorter


@dataclass(eq=False)
class ModelState:
    tokens: Prefix
    kind: str
    serial: int
    stamp: float = 0.0
    use_order: int = 0
    last_use: float = 0.0
    path_end: int = 0
    turns_above: int = 0
    parked: int = 0
    held: int = 0


@dataclass
class Model:
    policy: str
    block: int
    width: int
    checkpoint: int
    cost: PrefillCostModel
    idle: float | None = 60.0
    keep_turns: int = 2
    states: dict[Prefix, ModelState] = field(default_factory=dict)
    holds: dict[str, Prefix] = field(default_factory=dict)
    parks: dict[str, ModelState] = field(default_factory=dict)
    computed: list[Prefix] = field(default_factory=list)
    checkpointed: set[Prefix] = field(default_factory=set)
    watermark: float = 0.0
    clock: int = 0
    table: tuple[float, ...] = ()

    # --- definitions
    def kv_needed(self, prefixes: list[Prefix]) -> int:
        """How many blocks hold `prefixes`, when one block serves all whose contents it starts with."""
        held = [blocks_of(prefix, self.block) for prefix in prefixes]
        contents = set().union(*(contents for contents, _ in held))
        return len(contents.difference(*(shorter for _, shorter in held)))

    def live(self) -> list[Prefix]:
        return list(self.holds.values())

    def resident_blocks(self, without: ModelState | None = None) -> int:
        kept = [s for s in self.states.values() if s is not without]
        kv = self.kv_needed([s.tokens for s in kept] + self.live())
        return kv * self.width + len(kept) * self.checkpoint

    def size(self, state: ModelState) -> int:
        return self.resident_blocks() - self.resident_blocks(without=state)

    def fallback(self, state: ModelState) -> int:
        above = [len(t) for t in self.states if len(t) < len(state.tokens) and state.tokens[: len(t)] == t]
        return max(above, default=0)

    def below(self, state: ModelState) -> list[ModelState]:
        n = len(state.tokens)
        deeper = [s for s in self.states.values() if len(s.tokens) > n and s.tokens[:n] == state.tokens]
        return [
            s
            for s in deeper
            if not any(
                len(m.tokens) < len(s.tokens) and s.tokens[: len(m.tokens)] == m.tokens for m in deeper
            )
        ]

    def tier(self, state: ModelState) -> str:
        return {0: "leaf", 1: "inner"}.get(len(self.below(state)), "branch")

    def rank(self, state: ModelState, now: float) -> tuple[float, ...]:
        if self.policy == "lru":
            return (state.use_order,)
        position, fallback = len(state.tokens), self.fallback(state)
        density = self.cost.seconds(fallback, position) / self.size(state)
        if self.policy == "gds":
            return (state.stamp + density,)
        if self.policy == "rollback":
            below = self.below(state)
            chance = at_most(self.table, state.path_end - position)
            if len(below) == 1:
                chance -= at_most(self.table, max(state.path_end - len(below[0].tokens), 0))
            elif below:
                chance = 1.0
            return (state.stamp + chance * density,)
        tier = self.tier(state)
        superseded = tier == "inner" and (self.policy == "leaf-last" or state.turns_above > self.keep_turns)
        idle = tier == "leaf" and self.idle is not None and now >= state.last_use + self.idle
        return (0.0 if superseded or idle else 1.0, state.stamp + density)

    def victim(self, now: float) -> ModelState | None:
        free = [s for s in self.states.values() if not s.held]
        unparked = [s for s in free if not s.parked]
        if unparked:
            return min(unparked, key=lambda s: (self.rank(s, now), s.serial))
        return max(free, key=lambda s: s.park_order, default=None)

    def resumable(self, tokens: Prefix, limit: int) -> int:
        return max((len(t) for t in self.states if len(t) <= limit and tokens[: len(t)] == t), default=0)

    # --- events
    def use(self, state: ModelState, now: float) -> None:
        self.clock += 1
        state.use_order, state.last_use, state.stamp = self.clock, now, self.watermark

    def park(self, state: ModelState) -> None:
        if not state.parked:
            self.clock += 1
            state.park_order = self.clock
        state.parked += 1

    def capture(self, tokens: Prefix, kind: str, now: float, room: bool) -> bool:
        self.checkpointed.add(tokens)
        known = self.states.get(tokens)
        if known is None:
            self.clock += 1
            known = self.states[tokens] = ModelState(tokens, kind, self.clock, path_end=len(tokens))
            ends = [s.path_end for s in self.below(known)]
            known.path_end = max([known.path_end, *ends])
            # A request that runs from exactly here holds it from now on.
            known.held = sum(hold == tokens for hold in self.holds.values())
            fresh = True
        else:
            fresh = False
        above = [
            s
            for s in self.states.values()
            if len(s.tokens) < len(tokens) and tokens[: len(s.tokens)] == s.tokens
        ]
        for state in above:
            nearest = state is max(above, key=lambda s: len(s.tokens))
            distance, moved = state.path_end - len(state.tokens), abs(known.path_end - state.path_end)
            if nearest or moved > distance / 4:
                state.path_end = known.path_end
            state.turns_above += known.kind == "request_end"
        self.use(known, now)
        if fresh and not room and self.victim(now) is known:
            del self.states[tokens]
            return False
        return fresh

    def evict(self, now: float) -> tuple[ModelState, int] | None:
        victim = self.victim(now)
        if victim is None:
            return self.evict_held()
        rank, freed = self.rank(victim, now), self.size(victim)
        if self.policy in ("gds", "rollback") or (self.policy not in ("lru",) and rank[0] == 1.0):
            self.watermark = max(self.watermark, rank[-1])
        self.remove(victim)
        return victim, freed

    def evict_held(self) -> tuple[ModelState, int] | None:
        victim = min(self.states.values(), key=lambda s: s.use_order, default=None)
        if victim is None:
            return None
        aligned = victim.tokens[: len(victim.tokens) // self.block * self.block]
        before = self.resident_blocks()
        self.holds = {
            request: aligned if tokens == victim.tokens else tokens
            for request, tokens in self.holds.items()
            if tokens != victim.tokens or aligned
        }
        self.remove(victim)
        return victim, before - self.resident_blocks()

    def remove(self, victim: ModelState) -> None:
        del self.states[victim.tokens]
        for request in [r for r, s in self.parks.items() if s is victim]:
            del self.parks[request]

    def common(self, a: Prefix, b: Prefix) -> int:
        n = 0
        while n < min(len(a), len(b)) and a[n] == b[n]:
            n += 1
        return n

    def misses(self, tokens: Prefix, resumed: int) -> dict[str, int]:
        limit = len(tokens) - 1
        known = [*self.computed, *self.checkpointed]
        ideal = max(resumed, min(limit, max((self.common(tokens, p) for p in known), default=0)))
        ever = [len(p) for p in self.checkpointed if tokens[: len(p)] == p and len(p) <= limit]
        filed = [*self.states, *self.live()]
        resident = min(limit, max((self.common(tokens, p) for p in filed), default=0))
        c = max([resumed, *(n for n in ever if n <= ideal)])
        k = max([resumed, *(n for n in ever if n <= min(c, resident))])
        return {"placement": ideal - c, "capacity": c - k, "dependency": k - resumed}
