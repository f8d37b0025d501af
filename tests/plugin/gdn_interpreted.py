"""In-chunk export on CUDA, in Triton's interpreter on a CPU. `test_export_cuda.py` runs it in its own process."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import pytest
import torch

# First: it gives vLLM's layers their kernels.
from tests.plugin.gdn_layer import Row, Worker, make_layer, make_tokens, wrapper_of  # isort: skip
from flashstate.kernels.split_batch import BatchSplit, split_batch
from flashstate.plugin import worker_export_cuda
from flashstate.plugin.step_exports import ATTRIBUTE, ExportError

BLOCKS = 16
FIRST = [
    Row(70, block=1, has_state=False, offset=65, destination=9),
    Row(10, block=2),
    Row(66, block=3, offset=63, destination=10),
    Row(5, block=4, has_state=False, offset=2, destination=11),
]
"""A first chunk, a continued one, beside one without an export and one shorter than the convolution."""
BESIDE_DECODES = [
    Row(1, block=5, is_decode=True),
    Row(1, block=6, is_decode=True),
    Row(70, block=1, offset=64, destination=9),
    Row(67, block=2, has_state=False, offset=66, destination=10),
    Row(20, block=3, offset=1, destination=11),
]
"""On the grid, at the last token but one, and at the first."""


SHORT = [
    Row(1, block=5, is_decode=True),
    Row(20, block=1, offset=9, destination=9),
    Row(3, block=2),
    Row(66, block=3, has_state=False, offset=65, destination=10),
]


@pytest.fixture(scope="module", autouse=True)
def hooks() -> None:
    """As in a worker: before the model is loaded."""
    worker_export_cuda.install()
    worker_export_cuda.install()
    wrapper_of(Worker(tokens=make_tokens(0)))


def exports_of(*groups: list[Row]) -> dict[int, tuple[int, int]]:
    return {row.block: (row.offset, row.destination) for rows in groups for row in rows if row.offset}


def step(worker: Worker, exports: dict[int, tuple[int, int]]) -> list[torch.Tensor]:
    """One step through vLLM's wrapper; the outputs of the layers."""
    wrapper_of(worker).execute_model(SimpleNamespace(**({ATTRIBUTE: exports} if exports else {})))
    return worker.outputs


def run(rows: list[Row], layer: Any, tokens: torch.Tensor, exporting: bool) -> tuple[torch.Tensor, Any]:
    """One step of a copy of `layer`: its output, and the layer as it is after."""
    layer = copy.deepcopy(layer)
    (output,) = step(Worker((layer, rows), tokens=tokens), exports_of(rows) if exporting else {})
    return output, layer


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool((a.view(torch.uint8) == b.view(torch.uint8)).all())


def truncated(rows: list[Row], tokens: torch.Tensor) -> tuple[list[Row], torch.Tensor]:
    """The batch with each exporting sequence ended at its offset, and the others left out."""
    starts = accumulate((row.tokens for row in rows), initial=0)
    kept = [(row, start) for row, start in zip(rows, starts, strict=False) if row.offset]
    return (
        [replace(row, tokens=row.offset, offset=0) for row, _ in kept],
        torch.cat([tokens[start : start + row.offset] for row, start in kept]),
    )


@pytest.mark.parametrize(
    ("rows", "states"),
    [(FIRST, torch.float32), (BESIDE_DECODES, torch.float32), (SHORT, torch.float16)],
    ids=["first", "beside decodes", "recomputed"],
)
def test_an_export_changes_nothing_and_is_the_state_of_a_truncated_call(
    rows: list[Row], states: torch.dtype
) -> None:
    """float32 states: two calls that meet on the grid. Others: the stock call, and one of the tokens before."""
    layer, tokens = make_layer("gdn", BLOCKS, states), make_tokens(sum(row.tokens for row in rows))
    plain, after = run(rows, layer, tokens, exporting=False)
    output, exported = run(rows, layer, tokens, exporting=True)
    assert same_bits(output, plain)
    short, short_tokens = truncated(rows, tokens)
    _, ended = run(short, layer, short_tokens, exporting=False)
    destinations = {row.destination: row.block for row in rows if row.offset}
    assert output.isfinite().all() and output.any(dim=(1, 2)).all()
    for pool, untouched, at_offset in zip(exported.kv_cache, after.kv_cache, ended.kv_cache, strict=True):
        assert pool.isfinite().all()
        for block in range(BLOCKS):
            expected = at_offset[destinations[block]] if block in destinations else untouched[block]
            assert same_bits(pool[block], expected), block
            if block in destinations:
                assert not same_bits(pool[block], untouched[destinations[block]])


def test_a_cut_off_the_grid_would_change_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the comparison sees what it must."""
    rows = [Row(40, block=1, offset=24, destination=9)]
    layer, tokens = make_layer("gdn", BLOCKS), make_tokens(40)
    plain, _ = run(rows, layer, tokens, exporting=False)
    output, _ = run(rows, layer, tokens, exporting=True)
    assert same_bits(output, plain)
    monkeypatch.setattr(worker_export_cuda, "split_batch", off_the_grid)
    output, _ = run(rows, layer, tokens, exporting=True)
    assert not same_bits(output, plain)


def off_the_grid(bounds: list[int], offsets: list[int], grid: int) -> BatchSplit:
    return split_batch(bounds, offsets, grid // 4)


class Waits:
    """How often the worker may wait for its device."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def allowed(self) -> Iterator[None]:
        self.count += 1
        yield


def test_a_step_waits_once_for_all_groups_and_never_without_an_export(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two layers of one group and one of another, whose blocks are its own."""
    waits = Waits()
    monkeypatch.setattr("vllm.utils.gpu_sync_debug.gpu_sync_allowed", waits.allowed)
    first = [Row(20, block=1, offset=10, destination=9)]
    second = [Row(20, block=3, offset=10, destination=10)]
    layers = [make_layer(f"gdn{n}", BLOCKS, seed=n) for n in range(3)]
    groups = list(zip(layers, (first, first, second), strict=True))
    before = copy.deepcopy(layers)
    step(Worker(*groups, tokens=make_tokens(20)), {})
    assert waits.count == 0
    groups = list(zip(before, (first, first, second), strict=True))
    step(Worker(*groups, tokens=make_tokens(20)), exports_of(first, second))
    assert waits.count == 1
    for done, stock, written in zip(before, layers, (9, 9, 10), strict=True):
        for pool, plain in zip(done.kv_cache, stock.kv_cache, strict=True):
            changed = [block for block in range(BLOCKS) if not same_bits(pool[block], plain[block])]
            assert changed == [written]


def test_a_step_without_prefills_goes_through() -> None:
    rows = [Row(1, block=1, is_decode=True), Row(1, block=2, is_decode=True)]
    output, _ = run(rows, make_layer("gdn", BLOCKS), make_tokens(2), exporting=True)
    assert output.any()


def test_a_block_that_no_layer_writes_stops_the_engine() -> None:
    rows = [Row(40, block=1, offset=20, destination=9)]
    worker = Worker((make_layer("gdn", BLOCKS), rows), tokens=make_tokens(40))
    with pytest.raises(ExportError, match="of 2 blocks ordered for states, 1 are no layer's"):
        step(worker, {**exports_of(rows), 7: (3, 11)})


def test_a_layer_of_another_kind_that_writes_nothing_stops_the_engine() -> None:
    """Its metadata is the same, its code is not ours to hook: as OLMo's layers."""
    rows = [Row(40, block=1, offset=20, destination=9)]
    layers = [make_layer(name, BLOCKS) for name in ("hooked", "strange")]
    layers[1]._forward_core = lambda **_: None
    worker = Worker(*((layer, rows) for layer in layers), tokens=make_tokens(40))
    with pytest.raises(ExportError, match=r"1 layers wrote less than theirs \(strange\)"):
        step(worker, exports_of(rows))
    # Nothing of it is left for the next step.
    step(Worker((layers[0], rows), tokens=make_tokens(40)), exports_of(rows))
