"""A brute-force model of `AllocationCache`: lists of prefixes, everything looked up by comparing tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Prefix = tuple[int, ...]


@dataclass(eq=False)
class Kept:
    """A KV block, by all tokens up to its end, or a checkpoint, by all tokens up to it."""

    tokens: Prefix
    physical: tuple[int, ...]
    is_kv: bool
    order: int = 0


@dataclass(eq=False)
class Live:
    """The KV blocks that a request uses: full ones by index, and the one it fills."""

    full: list[Kept]
    tail: Kept | None = None


@dataclass
class AllocationModel:
    block: int
    kv: list[Kept] = field(default_factory=list)
    states: list[Kept] = field(default_factory=list)
    live: dict[str, Live] = field(default_factory=dict)
    computed: list[Prefix] = field(default_factory=list)
    checkpointed: set[Prefix] = field(default_factory=set)
    clock: int = 0

    # --- definitions
    def index(self, tokens: Prefix) -> int:
        """The block that the last token lies in."""
        return (len(tokens) - 1) // self.block

    def whole(self, tokens: Prefix) -> Kept | None:
        """The block that holds exactly this content."""
        return next((b for b in self.kv if b.tokens == tokens), None)

    def covering(self, tokens: Prefix) -> Kept | None:
        """The emptiest block with this content and perhaps more."""
        same = [
            b
            for b in self.kv
            if self.index(b.tokens) == self.index(tokens) and b.tokens[: len(tokens)] == tokens
        ]
        return min(same, key=lambda b: len(b.tokens), default=None)

    def run(self, tokens: Prefix, limit: int) -> list[Kept]:
        blocks: list[Kept] = []
        while (end := (len(blocks) + 1) * self.block) <= limit:
            block = self.whole(tokens[:end])
            if block is None:
                break
            blocks.append(block)
        return blocks

    def holds(self, tokens: Prefix) -> bool:
        """Whether the KV of a whole prefix is there."""
        full = len(tokens) // self.block
        if len(self.run(tokens, len(tokens))) < full:
            return False
        return len(tokens) % self.block == 0 or self.covering(tokens) is not None

    def resident(self, tokens: Prefix, limit: int) -> int:
        return max(n for n in range(limit + 1) if self.holds(tokens[:n]))

    def deepest(self, tokens: Prefix, limit: int) -> Kept | None:
        found = [
            s
            for s in self.states
            if len(s.tokens) <= limit and tokens[: len(s.tokens)] == s.tokens and self.holds(s.tokens)
        ]
        return max(found, key=lambda s: len(s.tokens), default=None)

    def is_used(self, block: Kept) -> bool:
        return any(block in live.full or block is live.tail for live in self.live.values())

    def open_block(self, tokens: Prefix) -> Kept | None:
        """The block that a request would fill on in place if it went on at the end of `tokens`."""
        block = self.covering(tokens) if len(tokens) % self.block else None
        return block if block is not None and block.tokens == tokens and not self.is_used(block) else None

    def kept(self) -> list[Kept]:
        return self.kv + self.states

    def victim(self) -> Kept | None:
        free = [k for k in self.kept() if not (k.is_kv and self.is_used(k))]
        return min(free, key=lambda k: k.order, default=None)

    def misses(self, tokens: Prefix, resumed: int) -> dict[str, int]:
        limit = len(tokens) - 1
        known = [*self.computed, *self.checkpointed]
        ideal = max(resumed, min(limit, max((common(tokens, p) for p in known), default=0)))
        ever = [len(p) for p in self.checkpointed if tokens[: len(p)] == p and len(p) <= limit]
        resident = self.resident(tokens, limit)
        c = max([resumed, *(n for n in ever if n <= ideal)])
        k = max([resumed, *(n for n in ever if n <= min(c, resident))])
        return {"placement": ideal - c, "capacity": c - k, "dependency": k - resumed}

    # --- events
    def use(self, kept: Kept) -> None:
        self.clock += 1
        kept.order = self.clock

    def admit(self, request: str, tokens: Prefix, resumed: int) -> None:
        blocks = self.run(tokens, len(tokens) - 1)
        live = Live(blocks)
        state = next((s for s in self.states if s.tokens == tokens[:resumed]), None)
        if state is not None:
            self.use(state)
            if len(blocks) == resumed // self.block:
                live.tail = self.open_block(state.tokens)
        self.live[request] = live

    def set_tail(self, live: Live, block: Kept | None) -> None:
        before, live.tail = live.tail, block
        if before is not None and before is not block and not self.is_used(before):
            self.use(before)

    def place(self, content: Prefix, physical: tuple[int, ...]) -> Kept:
        """A new block takes the place of emptier ones that nobody uses; a block that was filled on is the same."""
        block = next((b for b in self.kv if b.physical == physical), None)
        if block is None:
            for other in list(self.kv):
                same = self.index(other.tokens) == self.index(content)
                if same and content[: len(other.tokens)] == other.tokens and not self.is_used(other):
                    self.kv.remove(other)
            block = Kept(content, physical, True)
            self.kv.append(block)
        block.tokens = content
        return block

    def file(
        self,
        request: str,
        tokens: Prefix,
        position: int,
        kv: Sequence[tuple[int, ...]],
        *,
        ends_here: bool,
    ) -> None:
        live, full = self.live[request], position // self.block
        for i in range(len(live.full), full):
            content = tokens[: (i + 1) * self.block]
            block = self.whole(content)
            if block is None:
                if live.tail is not None and live.tail.physical != kv[i]:
                    self.set_tail(live, None)
                block = self.place(content, kv[i])
            live.full.append(block)
            self.set_tail(live, None)
        content = tokens[:position]
        if position % self.block and len(live.full) == full:
            tail = live.tail
            if tail is not None and tail.physical == kv[full]:
                tail.tokens = max(tail.tokens, content, key=len)
                return
            block = self.covering(content)
            inside = [s.tokens for s in self.states if full * self.block < len(s.tokens) <= position]
            if block is None and (ends_here or any(content[: len(s)] == s for s in inside)):
                self.set_tail(live, None)
                block = self.place(content, kv[full])
            self.set_tail(live, block)

    def capture(self, tokens: Prefix, physical: tuple[int, ...]) -> bool:
        self.checkpointed.add(tokens)
        known = next((s for s in self.states if s.tokens == tokens), None)
        if known is None:
            self.states.append(Kept(tokens, physical, False))
        self.use(known or self.states[-1])
        return known is None

    def release(self, request: str) -> None:
        live = self.live.pop(request)
        for block in ([live.tail] if live.tail else []) + live.full[::-1]:
            if not self.is_used(block):
                self.use(block)

    def evict(self) -> Kept | None:
        victim = self.victim()
        if victim is not None:
            (self.kv if victim.is_kv else self.states).remove(victim)
        return victim


def common(a: Prefix, b: Prefix) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n
