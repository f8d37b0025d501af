"""The systems that are compared: a placement, a kind of cache and an eviction policy under one name each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from flashstate.core.allocations import AllocationCache
from flashstate.core.base import StateCache
from flashstate.core.cache import HybridCache
from flashstate.core.marconi_tuner import TunedMarconiCache
from flashstate.core.placement import make_placement
from flashstate.core.policies import Policy, PolicySettings, make_policy
from flashstate.core.two_pools import STATE_TO_KV, TwoPoolCache
from flashstate.simulate.clairvoyant import Clairvoyant, ClairvoyantQueue, Future
from flashstate.simulate.engine_cache import EngineCache
from flashstate.simulate.live_sizes import LiveSizeCache, LiveSizes
from flashstate.simulate.pool import Pool
from flashstate.simulate.presets import CacheGeometry
from flashstate.simulate.schedule import Request

ALL: Final = "all"
DEFAULT_SYSTEMS: Final = (
    "vllm-dense", "vllm-sparse", "asc-lru", "gds", "leaf-last", "flashstate", "clairvoyant", "infinite"
)  # fmt: skip

_REMEMBERED_TOKENS: Final = 1 << 60
"""The simulator forgets nothing that once existed."""

_NEVER_IDLE: Final = PolicySettings(leaf_idle_s=None)

Memory = Literal["units", "live sizes", "apart", "two pools", "tuned", "foreseen", "endless"]
"""What is kept: whole units by a policy; by GreedyDual-Size with sizes of what is free at once; KV and checkpoints
apart by last use, of one memory or each of its own; units by Marconi with its tuner; by next use; all, for ever."""


@dataclass(frozen=True, slots=True)
class System:
    """One system of the field: where it takes checkpoints, and what it keeps of them."""

    name: str
    title: str
    placement: str
    policy: str = "lru"
    memory: Memory = "units"
    settings: PolicySettings = field(default_factory=PolicySettings)

    @property
    def needs_a_schedule(self) -> bool:
        """Whether it can only run where times do not depend on the cache: on the recorded clock."""
        return self.memory == "foreseen"

    def build(self, geometry: CacheGeometry, requests: Sequence[Request]) -> EngineCache:
        """An empty cache. `requests` is the schedule to come, for what knows the future."""
        placement = make_placement(self.placement)
        if self.memory == "two pools":
            kv = Pool(round(geometry.blocks / (1 + STATE_TO_KV)))
            return EngineCache(_two_pools(geometry), placement, kv, checkpoint_blocks=0)
        if self.memory == "live sizes":
            kv = Pool(geometry.blocks)
            sizes = LiveSizes(replace(self.settings, cost=geometry.cost), kv)
            return LiveSizeCache(_hybrid(geometry, sizes), placement, kv, geometry.checkpoint_blocks)
        pool = Pool(math.inf if self.memory == "endless" else geometry.blocks)
        return EngineCache(self._cache(geometry, requests), placement, pool, geometry.checkpoint_blocks)

    def _cache(self, geometry: CacheGeometry, requests: Sequence[Request]) -> StateCache:
        if self.memory == "apart":
            return AllocationCache(
                block_tokens=geometry.block_tokens, history_tokens=_REMEMBERED_TOKENS, cost=geometry.cost
            )
        settings = replace(self.settings, cost=geometry.cost)
        if self.memory == "tuned":
            return TunedMarconiCache(
                block_tokens=geometry.block_tokens, history_tokens=_REMEMBERED_TOKENS, settings=settings
            )
        if self.memory != "foreseen":
            return _hybrid(geometry, make_policy(self.policy, settings))
        foreseen = Clairvoyant(settings, Future(requests))
        cache = _hybrid(geometry, foreseen)
        cache.queue = ClairvoyantQueue(foreseen)
        return cache


def systems() -> dict[str, System]:
    """Every system by its name."""
    return {system.name: system for system in _SYSTEMS}


def chosen(names: Sequence[str]) -> list[System]:
    """The systems called `names`, each once, in that order; `all` stands for every one. Raises ValueError."""
    known = systems()
    wanted = [name for given in names for name in (known if given == ALL else (given,))]
    unknown = next((name for name in wanted if name not in known), None)
    if unknown is not None:
        raise ValueError(f"policy {unknown!r}: unknown; one of {', '.join(known)}, or {ALL}")
    return [known[name] for name in dict.fromkeys(wanted)]


def _hybrid(geometry: CacheGeometry, policy: Policy) -> HybridCache:
    return HybridCache(block_tokens=geometry.block_tokens, policy=policy, history_tokens=_REMEMBERED_TOKENS)


def _two_pools(geometry: CacheGeometry) -> TwoPoolCache:
    """States without padding to blocks, in their own share of the memory."""
    slots = int(geometry.memory_bytes * STATE_TO_KV / (1 + STATE_TO_KV) / geometry.checkpoint_bytes)
    return TwoPoolCache(
        block_tokens=geometry.block_tokens, history_tokens=_REMEMBERED_TOKENS, slots=slots, cost=geometry.cost
    )


def _alpha(alpha: float) -> PolicySettings:
    return PolicySettings(marconi_alpha=alpha)


_SYSTEMS: Final = (
    System("vllm-dense", "vLLM, dense: every second boundary and the last; LRU", "dense", memory="apart"),
    System("vllm-sparse", "vLLM 0.32: last boundary and junctions; LRU", "sparse", memory="apart"),
    System("dense-1088", "a checkpoint every 1,088 tokens; LRU", "every-1088", memory="apart"),
    System("sglang", "SGLang: 256-token grid, two pools, each LRU", "sglang", memory="two pools"),
    System("asc-lru", "paper's placement (ASC); KV and checkpoints LRU apart", "asc", memory="apart"),
    System("asc-unit-lru", "ASC; whole states LRU", "asc"),
    System("gds", "FlashState as published: ASC, GreedyDual-Size (Eq. 7)", "asc", "gds"),
    System(
        "gds-live", "the same; KV of running requests is not in a state's size", "asc", memory="live sizes"
    ),
    System("leaf-last", "its release: inner states and idle leaves first", "asc", "leaf-last"),
    System("leaf-last-no-idle", "the same, idle leaves are leaves", "asc", "leaf-last", settings=_NEVER_IDLE),
    System("keep-superseded", "the same, superseded states two turns longer", "asc", "keep-superseded"),
    System("lean-lru", "prompt end and request end only; whole states LRU", "lean"),
    System("lean-gds", "prompt end and request end only; GreedyDual-Size", "lean", "gds"),
    System("back-gds", "request end and just before prompt end; GreedyDual-Size", "back", "gds"),
    System(
        "marconi-0", "Marconi: branches and request ends; alpha 0", "marconi", "marconi", settings=_alpha(0)
    ),
    System("marconi-4", "the same, alpha 4", "marconi", "marconi", settings=_alpha(4)),
    System("marconi-16", "the same, alpha 16", "marconi", "marconi", settings=_alpha(16)),
    System("marconi-asc-1", "ASC; Marconi's eviction, alpha 1", "asc", "marconi", settings=_alpha(1)),
    System("marconi-asc-1.5", "ASC; Marconi's eviction, alpha 1.5", "asc", "marconi", settings=_alpha(1.5)),
    System("marconi-tuned", "Marconi with its online tuner of alpha", "marconi", "marconi", memory="tuned"),
    System("histate", "ASC; like HiState: last access + cost a byte", "asc", "histate"),
    System("rollback", "ASC; GreedyDual-Size by the chance of a resume there", "asc", "rollback"),
    System("hazard", "ASC; the same, by learnt idle times too", "asc", "hazard"),
    System("back-rollback", "request end and just before prompt end; rollback", "back", "rollback"),
    System("flashstate", "this project's default: learnt, forecast", "learnt", "forecast"),
    System("exact", "its server: to the token, one a prefill chunk; forecast", "exact", "forecast"),
    System("clairvoyant", "bound: ASC, evicts knowing the next use", "asc", memory="foreseen"),
    System("infinite", "bound: ASC, nothing is ever evicted", "asc", memory="endless"),
)
