"""What no policy can do: evict by when each state will really be resumed from. A bound to measure others against."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import accumulate, pairwise
from math import inf

from flashstate.core.policies.base import Policy, PolicySettings, Rank
from flashstate.core.queue import EvictionQueue
from flashstate.core.state import RecoveryUnit
from flashstate.simulate.path import SimPath
from flashstate.simulate.schedule import Request


class Future:
    """The requests to come, by play. Exact only for a schedule that does not depend on the cache."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests: dict[Hashable, list[Request]] = defaultdict(list)
        for request in requests:
            self._requests[request.path.namespace].append(request)
        self._starts = {play: [r.start_s for r in of_play] for play, of_play in self._requests.items()}
        self._ends = {
            play: list(accumulate((r.end_s for r in of_play), max))
            for play, of_play in self._requests.items()
        }
        """When each and all before it have ended."""
        self._turns_back = {play: _that_turn_back(of_play) for play, of_play in self._requests.items()}

    def next_use(self, unit: RecoveryUnit, now: float) -> float:
        """When `unit` will be resumed from, given what is cached and the ends still to come; infinite for never."""
        play = unit.node.root.namespace
        requests = self._requests[play]
        ended = bisect_right(self._ends[play], now)
        first = bisect_right(self._starts[play], now)
        if first < len(requests) and self._needs(unit, requests, ended, first, now):
            return requests[first].start_s
        turns_back = self._turns_back[play]
        for number in turns_back[bisect_right(turns_back, first) :]:
            if self._needs(unit, requests, ended, number, now):
                return requests[number].start_s
        return inf

    def _needs(
        self, unit: RecoveryUnit, requests: Sequence[Request], ended: int, number: int, now: float
    ) -> bool:
        """Whether the request of that number will resume from `unit`. The first `ended` are over."""
        request = requests[number]
        if not _contains(request, unit.position, _last_token(unit)):
            return False
        if any(
            _contains(request, end, token)
            for end, token in self._coming(requests[ended:number], now, unit.position)
        ):
            return False
        return not _is_superseded(unit, request)

    def _coming(self, requests: Sequence[Request], now: float, above: int) -> list[tuple[int, int]]:
        """Ends deeper than `above` that `requests` have still to reach: position and last token."""
        return [
            (len(r.path), r.path.token(len(r.path) - 1))
            for r in requests
            if r.end_s > now and len(r.path) > above
        ]


def _that_turn_back(requests: Sequence[Request]) -> list[int]:
    """Numbers of the requests that do not go on from the very end of the one before."""
    numbers = []
    for number, (before, request) in enumerate(pairwise(requests), start=1):
        end: SimPath = before.path
        if not _contains(request, len(end), end.token(len(end) - 1)):
            numbers.append(number)
    return numbers


def _contains(request: Request, position: int, last_token: int) -> bool:
    # A token names its whole prefix (see SimPath), so the last one says it all.
    return position < request.ask.prompt_tokens and request.path.token(position - 1) == last_token


def _last_token(unit: RecoveryUnit) -> int:
    ids = unit.node.piece.ids
    return ids[len(ids) - 1]


def _is_superseded(unit: RecoveryUnit, request: Request) -> bool:
    """Whether a deeper cached state serves `request`."""
    return any(_contains(request, below.position, _last_token(below)) for below in unit.states_below())


class Clairvoyant(Policy):
    """Restore cost a block, over the time to the next use: greedy, not optimal, but far beyond what can be known."""

    # Not registered: it needs a schedule.
    def __init__(self, settings: PolicySettings, future: Future) -> None:
        super().__init__(settings)
        self.future = future

    def rank(self, unit: RecoveryUnit, now: float) -> Rank:
        wait = self.future.next_use(unit, now) - now
        return (self.density(unit) / max(wait, 1e-9),)

    def density(self, unit: RecoveryUnit) -> float:
        """Prefill seconds saved for each block held."""
        return self.settings.cost.seconds(unit.fallback, unit.position) / unit.size_blocks


class ClairvoyantQueue(EvictionQueue):
    """Scans for the next victim: a rank that grows as its use comes near fits no heap."""

    policy: Clairvoyant

    def __init__(self, policy: Clairvoyant) -> None:
        super().__init__(policy)
        self._next_use: dict[RecoveryUnit, float] = {}
        self._by_serial: dict[RecoveryUnit, None] = {}

    def add(self, unit: RecoveryUnit) -> None:
        super().add(unit)
        self._by_serial[unit] = None  # serials are given in the order in which units come

    def push(self, unit: RecoveryUnit, now: float) -> None:
        self._next_use.pop(unit, None)

    def remove(self, unit: RecoveryUnit) -> None:
        super().remove(unit)
        self._next_use.pop(unit, None)
        self._by_serial.pop(unit, None)

    def peek(self, now: float) -> tuple[RecoveryUnit, Rank] | None:
        uses, next_use = self._next_use, self.policy.future.next_use
        idle = [unit for unit in self._by_serial if not unit.node.live]
        for unit in idle:
            use = uses.get(unit, -inf)
            if use <= now:
                use = uses[unit] = next_use(unit, now)
            if use == inf:
                return unit, (0.0,)
        best, least = None, inf
        density = self.policy.density
        for unit in idle:
            rank = density(unit) / (uses[unit] - now)
            if rank < least:
                best, least = unit, rank
        return None if best is None else (best, (least,))
