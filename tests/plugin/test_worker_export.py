"""What a worker on CPU makes of the scheduler's orders."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("vllm")

from flashstate.plugin.worker_export import ExportError, OrderedExports, Row, rows_of


def test_a_state_that_no_layer_exports_is_noticed() -> None:
    ordered = OrderedExports({4: (7, 8), 5: (2, 9)})
    starts = torch.tensor([0, 10, 13])
    assert rows_of(ordered, starts, torch.tensor([1, 2]), None) is None
    rows = rows_of(ordered, starts, torch.tensor([1, 4]), torch.tensor([True, False]))
    assert rows == [Row(0, 10, 1, True), Row(10, 13, 4, False, 7, 8)]
    with pytest.raises(ExportError, match="no layer exported 1 of the 2 states"):
        ordered.check()
    rows_of(ordered, starts, torch.tensor([5, 2]), None)
    ordered.check()


def test_no_orders_need_no_exporter() -> None:
    OrderedExports({}).check()
