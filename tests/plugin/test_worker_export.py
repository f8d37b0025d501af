"""What a worker on CPU makes of the scheduler's orders."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("vllm")

from flashstate.plugin.step_exports import ExportError, OrderedExports, Row
from flashstate.plugin.worker_export import joined


def test_a_state_that_no_layer_exports_is_noticed() -> None:
    ordered = OrderedExports({4: (7, 8), 5: (2, 9)})
    starts = torch.tensor([0, 10, 13])
    assert ordered.rows(starts, torch.tensor([1, 2]), None) is None
    rows = ordered.rows(starts, torch.tensor([1, 4]), torch.tensor([True, False]))
    assert rows == [Row(0, 10, 1, True), Row(10, 13, 4, False, 7, 8)]
    with pytest.raises(ExportError, match="no layer exported 1 of the 2 states"):
        ordered.check()
    ordered.rows(starts, torch.tensor([5, 2]), None)
    ordered.check()


def test_a_slot_beyond_the_sequences_exports_nothing() -> None:
    ordered = OrderedExports({4: (7, 8)})
    assert ordered.rows(torch.tensor([0, 9]), torch.tensor([3, 4])) == [Row(0, 9, 3, True)]
    with pytest.raises(ExportError, match="no layer exported 1 of the 1 states"):
        ordered.check()


def test_no_orders_need_no_exporter() -> None:
    OrderedExports({}).check()


def test_a_step_reads_its_sequences_once() -> None:
    ordered, slots = OrderedExports({4: (7, 8)}), torch.tensor([4])
    starts, new = torch.tensor([0, 9]), torch.tensor([False])
    assert ordered.rows(starts, slots) == [Row(0, 9, 4, True, 7, 8)]
    rows = ordered.rows(starts, slots, new)
    assert rows == [Row(0, 9, 4, False, 7, 8)], "what has a state was not said before"
    assert ordered.rows(starts, slots) is rows
    assert ordered.rows(starts, slots, new) is rows
    assert ordered.rows(starts, torch.tensor([3])) is None


@pytest.mark.parametrize("whole", [None, 0, 1, 2])
def test_pieces_are_put_together_in_place(whole: int | None) -> None:
    outputs, bounds = torch.randn(1, 10, 2, 3), [(0, 2), (2, 7), (7, 10)]
    pieces = []
    for number, (start, end) in enumerate(bounds):
        piece = outputs[:, start:end].clone()
        if number == whole:
            piece = torch.full_like(outputs, torch.nan)
            piece[:, start:end] = outputs[:, start:end]
        pieces.append((start, end, piece))
    assert torch.equal(joined(pieces, 10), outputs)
