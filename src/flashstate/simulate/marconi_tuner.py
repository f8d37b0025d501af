"""Marconi's online tuner: the alpha that would have done best on the requests just served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from flashstate.core.cache import HybridCache
from flashstate.core.counters import Attribution
from flashstate.core.policies.marconi import Marconi
from flashstate.simulate.engine_cache import EngineCache
from flashstate.simulate.schedule import Request

ALPHAS: Final = (0.0, 1.0, 10.0)
WINDOW: Final = 400
"""Requests looked back on, and served before alpha is first chosen."""
EVERY: Final = 100
"""Requests after which it is chosen anew."""


class TunedEngineCache(EngineCache):
    """A cache under `marconi` whose alpha follows the best of a small grid, each played on a cache of its own.

    Marconi replays a recent window for each candidate. Here the candidates are played along as requests come and
    compared over the same window, which spares the replay and starts none of them cold. Recorded clock only: the
    candidates see the requests at the times of the one that serves.
    """

    def __init__(self, make: Callable[[float], EngineCache]) -> None:
        serving = make(0.0)
        super().__init__(serving.cache, serving.placement, serving.pool, serving.checkpoint_blocks)
        self._candidates = {alpha: make(alpha) for alpha in ALPHAS}
        self._resumed: deque[dict[float, int]] = deque(maxlen=WINDOW)
        self._served = 0

    @property
    def alpha(self) -> float:
        """The one in use."""
        return self._policy.alpha

    @property
    def _policy(self) -> Marconi:
        assert isinstance(self.cache, HybridCache) and isinstance(self.cache.policy, Marconi)
        return self.cache.policy

    def start(self, request: Request, now: float) -> Attribution:
        played = {alpha: engine.start(request, now) for alpha, engine in self._candidates.items()}
        self._resumed.append({alpha: found.resumed_tokens for alpha, found in played.items()})
        self._served += 1
        if self._served >= WINDOW and self._served % EVERY == 0:
            self._choose(now)
        return super().start(request, now)

    def end(self, request: Request, now: float) -> None:
        for engine in self._candidates.values():
            engine.end(request, now)
        super().end(request, now)

    def _choose(self, now: float) -> None:
        best = max(ALPHAS, key=lambda alpha: sum(resumed[alpha] for resumed in self._resumed))
        if best != self._policy.alpha:
            self._policy.alpha = best
            assert isinstance(self.cache, HybridCache)
            self.cache.queue.rebuild(self.cache.units(), now)
