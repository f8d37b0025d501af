"""The contract of an eviction policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from flashstate.core.cost import PrefillCostModel
from flashstate.core.state import RecoveryUnit
from flashstate.core.thread import Thread

Rank = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What the policies can be told."""

    cost: PrefillCostModel = field(default_factory=PrefillCostModel)
    leaf_idle_s: float | None = 60.0
    """Seconds without use after which leaf-last counts a leaf as inner; None: never."""
    keep_superseded_turns: int = 2
    """Turns for which a superseded state still counts as a leaf (FlashState, appendix E)."""
    marconi_alpha: float = 1.0
    """What Marconi's saving weighs against recency; 0: recency alone."""

    def __post_init__(self) -> None:
        if self.leaf_idle_s is not None and not self.leaf_idle_s >= 0:
            raise ValueError(f"leaf idle seconds {self.leaf_idle_s}: must be >= 0")
        if self.keep_superseded_turns < 0:
            raise ValueError(f"superseded turns {self.keep_superseded_turns}: must be >= 0")
        if not 0 <= self.marconi_alpha < inf:
            raise ValueError(f"Marconi alpha {self.marconi_alpha}: must be finite and >= 0")


class Policy(ABC):
    """Ranks units for eviction, lowest first.

    `rank` is a pure function of the unit, the time and what the policy has stamped or learnt. It must not fall
    when the unit's restore cost rises, its size shrinks, or a state below it goes: such changes are looked at
    only when the unit comes up. Any other change is pushed by the cache at once.
    """

    name: ClassVar[str]
    registry: ClassVar[dict[str, type[Policy]]] = {}

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings
        self.watermark = 0.0
        """The highest priority evicted so far, for policies that have one."""

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            Policy.registry[cls.name] = cls

    @abstractmethod
    def rank(self, unit: RecoveryUnit, now: float) -> Rank:
        """What `unit` is worth keeping for. Does not mutate."""

    def use(self, unit: RecoveryUnit) -> None:
        """`unit` was cached, resumed from, or let go by the last live request holding it."""
        unit.stamp = self.watermark

    def evicted(self, unit: RecoveryUnit, rank: Rank) -> None:
        """`unit` was evicted at `rank` (called before the tree changes)."""

    def follow(self, unit: RecoveryUnit, path_end: int, *, ended: bool, nearest: bool) -> bool:
        """A state below `unit` was captured, on a path that now ends at `path_end` tokens.

        `ended`: it is a request's end. `nearest`: no other state is between. True when the rank of `unit` may have
        fallen by it (the nearest is ranked again in any case).
        """
        return False

    def deadline(self, unit: RecoveryUnit, now: float) -> float | None:
        """When the rank of `unit` will change with no event, in seconds; None: it will not."""
        return None

    def learn(self, thread: Thread, rollback_tokens: int, population: int, now: float) -> bool:
        """A request came that left the path of `thread` `rollback_tokens` before its last end (0: it goes on).

        `thread` is as it was before. `population` is how many units are cached. True when the ranks of all of them
        have changed: every unit is then ranked afresh, so the more there are, the more rarely.
        """
        return False

    def moved(self, thread: Thread, now: float) -> bool:
        """A request of `thread` started or stopped, or `thread` was left. True when its units must be ranked again."""
        return False


class ThreadedPolicy(Policy):
    """A policy whose rank is one factor for all units of a thread, which moves with time, times each unit's weight.

    Units of one thread then keep their order as time passes. A unit without a thread has a factor of its own.
    """

    @abstractmethod
    def weight(self, unit: RecoveryUnit) -> float:
        """The unit's own part, >= 0. Time alone does not change it; else the contract of `rank` holds for it."""

    @abstractmethod
    def factor(self, owner: Thread | RecoveryUnit, now: float) -> float:
        """What the units of `owner`, a thread or a unit without one, have in common, >= 0.

        Only time changes it, a use of the unit, `moved` or `learn`.
        """

    @abstractmethod
    def lowest(self, owner: Thread | RecoveryUnit, now: float, least: float) -> tuple[float, float | None]:
        """The lowest that the factor comes to before it falls below both `least` and what it is now.

        And when that is, in seconds, later than `now`; None: never.
        """

    def rank(self, unit: RecoveryUnit, now: float) -> Rank:
        weight = self.weight(unit)
        # The weight again, for factor * weight may round two weights to one rank: then too they keep their order.
        return (self.factor(unit.thread or unit, now) * weight, weight)
