"""Which waiting turn is served next, and which is held back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from flashstate.core.cost import PrefillCostModel


@dataclass(slots=True, eq=False)
class Waiting:
    """A turn in the queue. Times in seconds, lengths in tokens."""

    serial: int
    """By arrival."""
    conversation: Hashable
    arrived_s: float
    tokens: int
    """To be in place before it can decode: the prompt, and after a preemption what it had generated too."""
    blocks: int
    """What its conversation keeps after it: KV and a checkpoint."""


Resumable = Callable[[Waiting], int]
"""Where a turn would resume if it were served now, in tokens."""


class Order(ABC):
    """Says who comes next. Names register themselves."""

    name: ClassVar[str]
    registry: ClassVar[dict[str, type[Order]]] = {}

    def __init__(self, cost: PrefillCostModel) -> None:
        self.cost = cost

    def __init_subclass__(cls) -> None:
        Order.registry[cls.name] = cls

    @abstractmethod
    def key(self, turn: Waiting, resumable: Resumable, now: float) -> float:
        """The lowest is served next; among equals, who came first."""

    def next(self, waiting: Iterable[Waiting], resumable: Resumable, now: float) -> Waiting | None:
        """Who is served next; None if nobody waits."""
        return min(waiting, key=lambda turn: (self.key(turn, resumable, now), turn.serial), default=None)


class FirstCome(Order):
    """First come, first served."""

    name = "fcfs"

    def key(self, turn: Waiting, resumable: Resumable, now: float) -> float:
        return 0.0


class LongestResident(Order):
    """Who resumes deepest: a context is used while it is there. Starves those whose context is gone."""

    name = "resident"

    def key(self, turn: Waiting, resumable: Resumable, now: float) -> float:
        return -float(resumable(turn))


class HighestResponseRatio(Order):
    """Highest (wait + service) / service: short turns first, and long ones the more the longer they wait.

    Service is the predicted prefill time: how long others would wait for it.
    """

    name = "hrrn"

    def key(self, turn: Waiting, resumable: Resumable, now: float) -> float:
        service = self.cost.seconds(min(resumable(turn), turn.tokens - 1), turn.tokens)
        return -(now - turn.arrived_s) / service


def order_names() -> list[str]:
    """Names `make_order` knows."""
    return list(Order.registry)


def make_order(name: str, cost: PrefillCostModel) -> Order:
    """The order called `name`. Raises ValueError for an unknown one."""
    if name not in Order.registry:
        raise ValueError(f"order {name!r}: unknown; one of {', '.join(Order.registry)}")
    return Order.registry[name](cost)


IDLE_S: Final = 300.0
"""A conversation without a running request for so long is not live: the longest gap the replay rules know."""


PATIENCE_S: Final = 300.0
"""Nobody is held back for longer: by then those it was held for have gone idle, or will be served for ever."""


class Guard:
    """Holds back turns whose context is gone while those that are served fill the cache: more would evict each other.

    The live working set is what the conversations that were served in the last IDLE_S seconds keep after their
    latest turn. Above `theta` of the cache, a turn that would compute more than half its tokens waits, up to
    PATIENCE_S.
    """

    def __init__(self, theta: float, capacity_blocks: float) -> None:
        self._most = theta * capacity_blocks
        self._blocks: dict[Hashable, int] = {}
        self._running: dict[Hashable, int] = {}
        self._ended: deque[tuple[float, Hashable]] = deque()
        self._last_end: dict[Hashable, float] = {}
        self.live_blocks = 0

    def admits(self, turn: Waiting, resumable: Resumable, now: float) -> bool:
        """Whether `turn` may be served now."""
        self._expire(now)
        if now - turn.arrived_s >= PATIENCE_S:
            return True
        others = self.live_blocks - self._blocks.get(turn.conversation, 0)
        if others + turn.blocks <= self._most:
            return True
        return 2 * resumable(turn) >= turn.tokens

    def started(self, turn: Waiting) -> None:
        """`turn` is being served."""
        conversation = turn.conversation
        self.live_blocks += turn.blocks - self._blocks.get(conversation, 0)
        self._blocks[conversation] = turn.blocks
        self._running[conversation] = self._running.get(conversation, 0) + 1

    def ended(self, turn: Waiting, now: float) -> None:
        """`turn` has ended, or was preempted."""
        conversation = turn.conversation
        self._running[conversation] -= 1
        self._last_end[conversation] = now
        self._ended.append((now, conversation))

    def _expire(self, now: float) -> None:
        while self._ended and self._ended[0][0] <= now - IDLE_S:
            end, conversation = self._ended.popleft()
            if self._last_end.get(conversation) == end and not self._running[conversation]:
                self.live_blocks -= self._blocks.pop(conversation)
                del self._last_end[conversation], self._running[conversation]


def allowed(
    guard: Guard | None, waiting: Sequence[Waiting], resumable: Resumable, now: float, *, idle: bool
) -> Sequence[Waiting]:
    """Those the guard lets through. An idle engine (nothing runs) serves anybody: held turns cannot wait for ever."""
    if guard is None:
        return waiting
    found = [turn for turn in waiting if guard.admits(turn, resumable, now)]
    return waiting if idle and not found else found
