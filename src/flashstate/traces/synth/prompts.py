"""The block ids of an agent's prompts, one after another.

An id names a whole prefix: whatever differs from all prompts before gets ids that were never used.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from flashstate.traces.blocks import common_blocks


@dataclass(slots=True)
class Ids:
    """The ids of one session that are still unused."""

    next: int = 0

    def take(self, count: int) -> array[int]:
        """The next `count`."""
        taken = array("q", range(self.next, self.next + count))
        self.next += count
        return taken


@dataclass(frozen=True, slots=True)
class Blocks:
    """A prompt's blocks: how many are those of the agent's previous prompt, and the others."""

    shared: int
    new: array[int]


class Prompts:
    """The prompts of one agent."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._now: array[int] = array("q")
        self._left: list[array[int]] = []  # prompts that an edit near the beginning left behind

    @property
    def count(self) -> int:
        """Blocks of the latest prompt."""
        return len(self._now)

    @property
    def has_left(self) -> bool:
        """Whether there is an earlier version to return to."""
        return bool(self._left)

    def begin(self, count: int, inherited: array[int]) -> Blocks:
        """The first prompt: `count` blocks, the first of them inherited."""
        return self._go_on(inherited[:count], count, shared=0)

    def extend(self, count: int, keep: int) -> Blocks:
        """A prompt of `count` blocks that keeps the first `keep` of the previous one."""
        keep = min(keep, count, self.count)
        return self._go_on(self._now[:keep], count, keep)

    def rewrite(self, count: int, keep: int) -> Blocks:
        """Like `extend`, for an edit that leaves most of the previous prompt behind."""
        self._left.append(self._now)
        return self.extend(count, keep)

    def go_back(self, count: int, version: float, extra: int) -> Blocks:
        """A prompt of `count` blocks that goes on with an earlier version, for `extra` blocks of it.

        `version` from 0 to 1 picks one of them.
        """
        earlier = self._left[int(version * len(self._left))]
        self._left.append(self._now)
        shared = min(common_blocks(self._now, earlier), count)
        return self._go_on(earlier[: min(shared + extra, count)], count, shared)

    def _go_on(self, kept: array[int], count: int, shared: int) -> Blocks:
        self._now = kept + self._ids.take(count - len(kept))
        return Blocks(shared, self._now[shared:])
