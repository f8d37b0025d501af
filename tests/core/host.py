"""A host with counted blocks: what a test needs around a `HybridCache`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from flashstate.core.base import Capture
from flashstate.core.cache import HybridCache
from flashstate.core.cost import PrefillCostModel
from flashstate.core.path import Tokens
from flashstate.core.policies import PolicySettings, make_policy
from flashstate.core.state import REQUEST_END, Checkpoint, RecoveryUnit

ONE_SECOND_A_TOKEN = PrefillCostModel(d=1.0, e=0.0)


class Host:
    """Blocks of 4 tokens, checkpoints of 3 blocks, a second a token: figures one can work out by hand."""

    def __init__(
        self, policy: str, *, block: int = 4, checkpoint: int = 3, width: int = 1, **policy_settings: Any
    ) -> None:
        settings = PolicySettings(cost=ONE_SECOND_A_TOKEN, **policy_settings)
        self.block, self.checkpoint, self.width = block, checkpoint, width
        self.cache = HybridCache(
            block_tokens=block, kv_width=width, policy=make_policy(policy, settings), history_tokens=10**9
        )
        self.held: set[int] = set()
        self._ids = count()

    def path(self, tokens: Sequence[int]) -> Tokens:
        return Tokens(tokens, self.block)

    def capture(
        self,
        tokens: Sequence[int],
        now: float = 0.0,
        *,
        kind: str = REQUEST_END,
        room: bool = True,
        request: str | None = None,
    ) -> Capture:
        """Offer the state at the end of `tokens`, in blocks never used before."""
        kv = [self._new(self.width) for _ in range(-(-len(tokens) // self.block))]
        checkpoint = Checkpoint(len(tokens), self._new(self.checkpoint), kind)
        got = self.cache.capture(self.path(tokens), checkpoint, kv, now, room=room, request=request)
        assert not got.taken & self.held
        self.held = (self.held | got.taken) - got.freed
        return got

    def evict(self, now: float = 0.0) -> tuple[int, int] | None:
        """Position and blocks of what went."""
        eviction = self.cache.evict(now)
        if eviction is None:
            return None
        assert eviction.freed <= self.held
        self.held -= eviction.freed
        return eviction.position, len(eviction.freed)

    def resume(self, request: str, tokens: Sequence[int], now: float = 0.0) -> int:
        """Start `request` at the deepest state of `tokens`; returns its position."""
        state = self.cache.lookup(self.path(tokens), len(tokens) - 1)
        position = state.position if state else 0
        self.cache.admit(request, self.path(tokens), position, now)
        return position

    def unit(self, tokens: Sequence[int]) -> RecoveryUnit:
        state = self.cache.lookup(self.path(tokens), len(tokens))
        assert state is not None
        assert state.position == len(tokens)
        return state.unit

    def _new(self, n: int) -> tuple[int, ...]:
        return tuple(next(self._ids) for _ in range(n))


def conversation(first: int, length: int) -> list[int]:
    """`length` tokens that no conversation with another `first` shares."""
    return [first, *range(1000, 999 + length)]
