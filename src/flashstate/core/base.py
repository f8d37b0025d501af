"""The contract of a cache of hybrid states, whatever it keeps together or apart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from flashstate.core.attribution import attribute
from flashstate.core.cost import PrefillCostModel
from flashstate.core.counters import Attribution, Counters
from flashstate.core.history import History
from flashstate.core.path import TokenPath
from flashstate.core.state import Checkpoint, HybridState
from flashstate.core.tree import KVBlock


@dataclass(slots=True)
class Capture:
    """What became of an offered state: kept or not, the physical blocks now held for it, and those let go."""

    kept: bool
    taken: frozenset[int] = frozenset()
    freed: frozenset[int] = frozenset()


@dataclass(slots=True)
class Eviction:
    """What is gone: where its state was, and the physical blocks the cache no longer holds."""

    position: int
    tier: str
    freed: frozenset[int]


class StateCache(ABC):
    """Files states and KV, finds where a prefix may resume, and gives blocks up under pressure.

    The host owns the physical blocks and tells the time: `now` is any clock in seconds that does not run
    backwards. A block named in `taken` must not be reused until it is named in `freed`. Not thread-safe.

    A request's life: lookup, observe, learn, admit, captures, file_kv, computed, release.
    """

    def __init__(self, block_tokens: int, history_tokens: int, cost: PrefillCostModel) -> None:
        self.block_tokens = block_tokens
        self.cost = cost
        self.counters = Counters()
        self.history = History(block_tokens, history_tokens)
        self.resident_blocks = 0

    @abstractmethod
    def lookup(self, path: TokenPath, limit: int) -> HybridState | None:
        """The deepest state that is a prefix of `path`, at most `limit` tokens. Does not mutate."""

    @abstractmethod
    def resident(self, path: TokenPath, limit: int) -> list[KVBlock]:
        """KV blocks of the longest prefix of `path` still held, full blocks only, at most `limit` tokens.

        Computing them again fills the same blocks. Does not mutate.
        """

    def observe(self, path: TokenPath, resumed: int) -> Attribution:
        """Count a new request: its ideal position and the cause of every token short of it. Call before `admit`."""
        limit = len(path) - 1
        precedent = self.history.precedent(path, limit)
        attribution = attribute(len(path), resumed, precedent, self.resident_tokens(path, limit), self.cost)
        self.counters.add(attribution)
        return attribution

    @abstractmethod
    def resident_tokens(self, path: TokenPath, limit: int) -> int:
        """End of the longest prefix of `path` whose KV is held, to the token, at most `limit`. Does not mutate."""

    def learn(self, request: Hashable, path: TokenPath, now: float) -> int | None:
        """Let the policy see how `request` relates to the last one on its path. Call before `admit`.

        Returns how many tokens before the end of that one's prompt it turns back (below 0: inside the output); None
        if it goes on from the end, or if nothing is known.
        """
        return None

    @abstractmethod
    def admit(self, request: Hashable, path: TokenPath, resumed: int, now: float) -> None:
        """`request` starts to run, resumed at `resumed` tokens (0: cold): that state is held until `release`."""

    @abstractmethod
    def capture(
        self,
        path: TokenPath,
        checkpoint: Checkpoint,
        kv: Sequence[KVBlock],
        now: float,
        *,
        room: bool,
        request: Hashable = None,
    ) -> Capture:
        """Offer the state of `request` after `checkpoint.position` tokens of `path`, with the KV of that prefix.

        `room`: whether a block is free. If not, the cache may refuse. A state already held there is kept instead.
        """

    def file_kv(
        self, path: TokenPath, position: int, kv: Sequence[KVBlock], now: float, *, request: Hashable = None
    ) -> Capture:
        """Offer the KV of `request`, which ends after `position` tokens: some caches keep KV without a state."""
        return Capture(kept=False)

    def computed(
        self, request: Hashable, path: TokenPath, position: int, now: float, hint: Hashable = None
    ) -> None:
        """Remember that `request` computed `position` tokens of `path`, whether or not a state was kept.

        `hint`: how its response stopped, if the host knows; equal ones are alike.
        """
        if position > 0:
            self.history.computed(path, position)

    @abstractmethod
    def release(self, request: Hashable, now: float) -> frozenset[int]:
        """`request` ended or was preempted. Returns the blocks no longer held. Idempotent."""

    @abstractmethod
    def evict(self, now: float) -> Eviction | None:
        """Give up what is least worth keeping; None if there is nothing to give up."""
