"""One engine's event log, event by event, against the core with blocks that are only numbers."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flashstate.core.base import Capture
from flashstate.core.cache import HybridCache
from flashstate.core.cost import PrefillCostModel
from flashstate.core.path import Tokens
from flashstate.core.policies import PolicySettings, make_policy
from flashstate.core.state import Checkpoint
from flashstate.simulate.pool import Pool

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Start:
    """Where one request resumed, in tokens."""

    request: str
    engine: int
    simulator: int
    is_given: bool
    """vLLM's own prefix cache led further than any state: its position is in the log, not decided here."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """A state that was given up."""

    position: int
    tier: str

    def __str__(self) -> str:
        return f"the {self.tier} at {self.position:,}"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What engine and simulator did not have in common."""

    line: int
    """Of the log."""
    what: str
    engine: str
    simulator: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}: engine {self.engine}, simulator {self.simulator}"


class LogReplay:
    """Plays the events of one engine, from its setup on.

    Given: what came and when, which blocks requests take and let go, where vLLM's own cache leads. Decided here: where
    each request resumes, which states are kept, which are given up and so how many blocks are free. What the engine
    decided is only compared.
    """

    def __init__(self, setup: Event) -> None:
        settings = dict(setup["settings"])
        cost = PrefillCostModel(**settings.pop("cost"))
        self.cache = HybridCache(
            block_tokens=setup["block_tokens"],
            kv_width=setup["kv_width"],
            policy=make_policy(setup["policy"], PolicySettings(cost=cost, **settings)),
            history_tokens=setup["history_tokens"],
        )
        self.pool = Pool(setup["blocks"])
        self.starts: list[Start] = []
        self.engine_evicted: list[Evicted] = []
        self.simulator_evicted: list[Evicted] = []
        self.first: Disagreement | None = None
        self._line = 0
        self._ids: dict[str, array[int]] = {}
        self._paths: dict[str, Tokens] = {}
        self._waiting: dict[str, tuple[int, bool]] = {}
        """Where each would resume, and whether at a state of ours."""

    def play(self, line: int, event: Event) -> None:
        """The next event. Raises KeyError, TypeError, ValueError or AssertionError if it makes no sense."""
        self._line = line
        kind, now = event["event"], event.get("now", 0.0)
        if kind != "evicted":
            self._compare_evictions(len(self.engine_evicted))
        match kind:
            case "arrived":
                self._arrived(event, now)
            case "lookup":
                self._lookup(event, now)
            case "started":
                self._started(event, now)
            case "computed":
                stop = tuple(event["stop"])
                self.cache.computed(event["request"], self._path(event), event["position"], now, stop)
            case "offered":
                self._offered(event, now)
            case "ended":
                self._ended(event["request"], bool(event.get("last")), now)
            case "cleared":
                self._waiting.clear()
                self.pool.let_go(self.cache.clear())
            case "took":
                self._took(event, now)
            case "touched":
                self.pool.hold(event["blocks"])
            case "freed":
                self.pool.let_go(event["blocks"])
            case "evicted":
                self.engine_evicted.append(Evicted(event["position"], event["tier"]))
                self._compare_evictions(len(self.engine_evicted) - 1)
            case _:
                raise KeyError(kind)

    # --- requests ---------------------------------------------------------------------------------------

    def _arrived(self, event: Event, now: float) -> None:
        path = self._path(event)
        state = self.cache.lookup(path, len(path) - 1)
        if state is not None:
            self.cache.park(event["request"], state.unit, now)

    def _lookup(self, event: Event, now: float) -> None:
        request, path, found = event["request"], self._path(event), event["found"]
        self._compare(
            f"states on the path of request {request}", event["held"], self._held(path, event["limit"])
        )
        state = self.cache.lookup(path, event["limit"])
        if state is None or state.position <= found:
            self.cache.unpark(request, now)
            self._waiting[request] = (found, False)
        else:
            self.cache.park(request, state.unit, now)
            self._waiting[request] = (state.position, True)

    def _held(self, path: Tokens, limit: int) -> list[int]:
        tree = self.cache.tree
        return [node.position for node in tree.filed(tree.find(path, limit).node)][::-1]

    def _started(self, event: Event, now: float) -> None:
        request, path = event["request"], self._path(event)
        position, ours = self._waiting.pop(request)
        self._compare(f"where request {request} resumes", event["position"], position)
        self.starts.append(Start(request, event["position"], position, position > 0 and not ours))
        if event["learns"]:
            if event["new"]:
                self.cache.observe(path, position)
            self.cache.learn(request, path, now)
        self.cache.admit(request, path, position if ours else 0, now)

    def _ended(self, request: str, is_last: bool, now: float) -> None:
        self._waiting.pop(request, None)
        self._ids.pop(request, None)
        self._paths.pop(request, None)
        release = self.cache.end_session if is_last else self.cache.release
        self.pool.let_go(release(request, now))

    def _path(self, event: Event) -> Tokens:
        request = event["request"]
        start = event.get("from")
        if start is None:
            return self._paths[request]
        ids = self._ids.get(request)
        if ids is None or start < len(ids):
            before = self._paths.get(request)
            namespace = event["namespace"] if before is None else before.namespace
            ids = self._ids[request] = ids[:start] if ids is not None else array("q")
            self._paths[request] = Tokens(ids, self.cache.block_tokens, namespace)
        assert len(ids) == start, f"tokens from {start} on, {len(ids)} known"
        ids.extend(event["tokens"])
        return self._paths[request]

    # --- blocks -----------------------------------------------------------------------------------------

    def _offered(self, event: Event, now: float) -> None:
        self._compare("free blocks", event["free"], self.pool.free)
        checkpoint = Checkpoint(event["position"], tuple(event["state"]), event["kind"])
        kv = [tuple(blocks) for blocks in event["kv"]]
        room, path = self.pool.free > 0, self._path(event)
        self._own(self.cache.capture(path, checkpoint, kv, now, room=room, request=event["request"]))

    def _own(self, capture: Capture) -> None:
        self.pool.hold(capture.taken)
        self.pool.let_go(capture.freed)

    def _took(self, event: Event, now: float) -> None:
        self._compare("free blocks", event["free"], self.pool.free)
        while self.pool.free < event["blocks"]:
            eviction = self.cache.evict(now)
            if eviction is None:
                break
            self.simulator_evicted.append(Evicted(eviction.position, eviction.tier))
            self.pool.let_go(eviction.freed)
        self.pool.hold(self.pool.new(event["blocks"]))

    # --- comparison -------------------------------------------------------------------------------------

    def _compare_evictions(self, at: int) -> None:
        """The eviction numbered `at` of either side, if it should be known by now."""
        if self.first is None:
            engine, simulator = (_at(they, at) for they in (self.engine_evicted, self.simulator_evicted))
            self._compare(f"eviction {at + 1:,}", engine, simulator)

    def _compare(self, what: str, engine: object, simulator: object) -> None:
        if self.first is None and engine != simulator:
            self.first = Disagreement(self._line, what, str(engine), str(simulator))


def _at(evicted: Sequence[Evicted], index: int) -> Evicted | str:
    return evicted[index] if index < len(evicted) else "none"
