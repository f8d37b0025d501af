"""Marconi's online tuner (MLSys 2025): alpha by replaying what came lately."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import count
from typing import Final, overload

from flashstate.core.base import Capture, Eviction
from flashstate.core.cache import HybridCache
from flashstate.core.path import TokenPath
from flashstate.core.policies.base import PolicySettings
from flashstate.core.policies.marconi import Marconi
from flashstate.core.state import Checkpoint
from flashstate.core.tree import KVBlock

ALPHAS: Final = (0.0, 1.0, 4.0, 16.0)
"""What is tried."""
BOOTSTRAP: Final = 5
"""Requests before the first choice, against those before the first eviction: 5 to 15 times as many in the paper."""
WINDOW: Final = 256
"""Requests that are replayed."""
EVERY: Final = 1024
"""Requests from one choice to the next."""
_WEIGH_EVERY: Final = 32
"""Requests for which a replay keeps the range of savings: a window is short."""


class Replay(HybridCache):
    """The same requests, evicted by another alpha, in blocks that are only numbers."""

    def __init__(self, block_tokens: int, settings: PolicySettings, kv_width: int) -> None:
        self.marconi = Marconi(settings)
        # Nobody asks it for reasons, so it need not remember.
        super().__init__(block_tokens=block_tokens, policy=self.marconi, history_tokens=1, kv_width=kv_width)
        self.hit_tokens = 0
        self._under_pressure = False
        self._requests = 0
        self._resumed: dict[Hashable, int] = {}
        self._ids = count()

    def begin(self, request: Hashable, path: TokenPath, now: float) -> None:
        """`request` resumes where it can here."""
        if self._requests % _WEIGH_EVERY == 0:
            self._weigh(now)
        self._requests += 1
        state = self.lookup(path, len(path) - 1)
        self._resumed[request] = resumed = state.position if state is not None else 0
        self.hit_tokens += resumed if self._under_pressure else 0
        self.admit(request, path, resumed, now)

    def offer(
        self, request: Hashable, path: TokenPath, position: int, blocks: int, kind: str, now: float
    ) -> None:
        """A checkpoint of `blocks` blocks, if `request` computes that far here."""
        if position > self._resumed.get(request, 0):
            kv = NewBlocks(self._ids, -(-position // self.block_tokens), self.tree.kv_width)
            checkpoint = Checkpoint(position, tuple(next(self._ids) for _ in range(blocks)), kind)
            self.capture(path, checkpoint, kv, now, room=True, request=request)

    def finish(self, request: Hashable, now: float) -> None:
        """`request` ends."""
        self._resumed.pop(request, None)
        self.release(request, now)

    def fit(self, blocks: int, now: float) -> None:
        """No more than `blocks` are left to the cache."""
        if not self._under_pressure:
            self._under_pressure = True
            self._weigh(now)
        while self.resident_blocks > blocks and self.evict(now) is not None:
            pass

    def _weigh(self, now: float) -> None:
        self.marconi.weigh()
        self.queue.rebuild(self.units(), now)


class TunedMarconiCache(HybridCache):
    """Evicts by Marconi; alpha is 0, then whichever of `ALPHAS` gives the most tokens on the last `WINDOW` requests.

    First chosen `BOOTSTRAP` times as many requests after the first eviction as came before it, then once in `EVERY`.
    Each alpha is tried from an empty cache, within the blocks that the host left to this one, and counts from its
    first eviction on. A request that resumes earlier there than here takes no checkpoints in between. The paper
    replays from a snapshot and beside the server; here a choice costs len(ALPHAS) * WINDOW requests on the spot.
    """

    def __init__(
        self, *, block_tokens: int, history_tokens: int, settings: PolicySettings, kv_width: int = 1
    ) -> None:
        self.marconi = Marconi(replace(settings, marconi_alpha=0.0))
        super().__init__(
            block_tokens=block_tokens, policy=self.marconi, history_tokens=history_tokens, kv_width=kv_width
        )
        self._log: deque[tuple[bool, Callable[[Replay], None]]] = deque()
        """What came, and whether it is a request's start."""
        self._logged = 0
        self._requests = 0
        self._next_choice: int | None = None

    def admit(self, request: Hashable, path: TokenPath, resumed: int, now: float) -> None:
        self._requests += 1
        if self._next_choice is not None and self._requests >= self._next_choice:
            self._next_choice = self._requests + EVERY
            self._choose(now)
        self._note(lambda replay: replay.begin(request, path, now), starts=True)
        super().admit(request, path, resumed, now)

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
        position, blocks, kind = checkpoint.position, len(checkpoint.blocks), checkpoint.kind
        self._note(lambda replay: replay.offer(request, path, position, blocks, kind, now))
        return super().capture(path, checkpoint, kv, now, room=room, request=request)

    def release(self, request: Hashable, now: float) -> frozenset[int]:
        self._note(lambda replay: replay.finish(request, now))
        return super().release(request, now)

    def evict(self, now: float) -> Eviction | None:
        # One block too many, not all that the victim frees.
        room = self.resident_blocks - 1
        self._note(lambda replay: replay.fit(room, now))
        if self._next_choice is None:
            self._next_choice = (1 + BOOTSTRAP) * self._requests
        return super().evict(now)

    def clear(self) -> frozenset[int]:
        self._log.clear()
        self._logged = 0
        return super().clear()

    def _note(self, event: Callable[[Replay], None], *, starts: bool = False) -> None:
        self._log.append((starts, event))
        self._logged += starts
        while self._logged > WINDOW:
            self._logged -= self._log.popleft()[0]

    def _choose(self, now: float) -> None:
        self.marconi.alpha = max(ALPHAS, key=self._hit_tokens)
        self.marconi.weigh()
        self.queue.rebuild(self.units(), now)

    def _hit_tokens(self, alpha: float) -> int:
        settings = replace(self.marconi.settings, marconi_alpha=alpha)
        replay = Replay(self.block_tokens, settings, self.tree.kv_width)
        for _, event in self._log:
            event(replay)
        return replay.hit_tokens


class NewBlocks(Sequence[KVBlock]):
    """Numbers for the KV of a prefix, made when they are asked for."""

    def __init__(self, ids: count[int], blocks: int, width: int) -> None:
        self._ids, self._blocks, self._width = ids, blocks, width

    def __len__(self) -> int:
        return self._blocks

    @overload
    def __getitem__(self, index: int) -> KVBlock: ...

    @overload
    def __getitem__(self, index: slice) -> list[KVBlock]: ...

    def __getitem__(self, index: int | slice) -> KVBlock | list[KVBlock]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(self._blocks))]
        return tuple(next(self._ids) for _ in range(self._width))
