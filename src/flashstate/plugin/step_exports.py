"""What a step exports from inside its chunks, as the scheduler orders it and a layer of the workers finds it.

The scheduler names what to export by physical blocks, which no two requests share: `{live block: (offset, block)}`.
The live block is the one a layer reads its state from and writes it to in this step; the offset counts tokens of the
request's chunk; the other block is where the state at that offset goes, in every layer of the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import torch
from vllm.forward_context import get_forward_context, is_forward_context_available

ATTRIBUTE: Final = "flashstate_exports"
"""Of vLLM's SchedulerOutput, on its way to the workers, and key into a forward context's `additional_kwargs`."""

Exports = Mapping[int, tuple[int, int]]


class ExportError(RuntimeError):
    """States that the scheduler counts on were not written. Nothing computed after this may be served."""


class Row(NamedTuple):
    """One sequence of a varlen batch and what to export from it."""

    begin: int
    """Its first token in the batch."""
    end: int
    slot: int
    """Its live block."""
    has_state: bool
    offset: int = 0
    """Tokens after which to export; 0: nothing."""
    destination: int = 0


class _Read(NamedTuple):
    """What a layer has said of the step's sequences."""

    slots: torch.Tensor
    """Kept, so that no others come to lie at this address within the step."""
    says_state: bool
    """Whether the rows' `has_state` was said."""
    rows: list[Row] | None


class OrderedExports(Mapping[int, tuple[int, int]]):
    """What a step exports. Remembers which live blocks an exporter has looked up: the others' states no one writes."""

    def __init__(self, exports: Exports) -> None:
        self._exports = exports
        self._found: set[int] = set()
        self._read: dict[tuple[int, int], _Read] = {}
        """By the slots' address and number."""

    def __getitem__(self, block: int) -> tuple[int, int]:
        export = self._exports[block]
        self._found.add(block)
        return export

    def __iter__(self) -> Iterator[int]:
        return iter(self._exports)

    def __len__(self) -> int:
        return len(self._exports)

    def check(self) -> None:
        """Raise ExportError unless an exporter has found each block."""
        left = len(self._exports) - len(self._found)
        if left:
            raise ExportError(
                f"no layer exported {left} of the {len(self)} states ordered: flashstate does not know this model's "
                "kernels; serve it with --in-chunk-export off"
            )

    def rows(
        self, starts: torch.Tensor, slots: torch.Tensor, has_state: torch.Tensor | None = None
    ) -> list[Row] | None:
        """The batch's sequences if any of them exports, else None; read once a step for the same slots.

        starts: [N + 1] first tokens. slots: [N] live blocks. has_state: [N] bool; None: as said before in this step, or
        else all.
        """
        if not self._exports:
            return None
        key = slots.data_ptr(), slots.numel()
        known = self._read.get(key)
        if known is None or (has_state is not None and not known.says_state):
            known = self._read[key] = _Read(
                slots, has_state is not None, self._rows(starts, slots, has_state)
            )
        return known.rows

    def _rows(
        self, starts: torch.Tensor, slots: torch.Tensor, has_state: torch.Tensor | None
    ) -> list[Row] | None:
        blocks = slots.tolist()
        if not any(block in self._exports for block in blocks):
            return None
        bounds = starts.tolist()
        warm = [True] * len(blocks) if has_state is None else has_state.tolist()
        return [
            Row(bounds[i], bounds[i + 1], block, warm[i], *self.get(block, (0, 0)))
            for i, block in enumerate(blocks[: len(bounds) - 1])
        ]


def step_exports() -> OrderedExports | None:
    """What the running forward pass exports; None outside one."""
    if not is_forward_context_available():
        return None
    exports: OrderedExports | None = get_forward_context().additional_kwargs.get(ATTRIBUTE)
    return exports


def rows_of(
    starts: torch.Tensor, slots: torch.Tensor, has_state: torch.Tensor | None = None
) -> list[Row] | None:
    """`OrderedExports.rows` of the running forward pass; None outside one."""
    exports = step_exports()
    return None if exports is None else exports.rows(starts, slots, has_state)
