"""Export by splitting, over vLLM's own CPU kernels as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from flashstate.kernels.split import export_by_split

HEADS, KEY_HEADS, DIM = 4, 2, 64
SLOT, EXPORT_SLOT, SLOTS = 1, 2, 4
Run = Callable[..., torch.Tensor]


def make_gdn(tokens: int, pool: torch.Tensor) -> Run:
    """vLLM's chunked gated delta rule. Tile grid 64; pool [slots, H, K, V] float32."""
    pytest.importorskip("vllm._C", reason="needs vLLM for CPUs")
    draw = torch.Generator().manual_seed(tokens)
    q, k = (torch.randn(1, tokens, KEY_HEADS, DIM, generator=draw).bfloat16() for _ in range(2))
    v = torch.randn(1, tokens, HEADS, DIM, generator=draw).bfloat16()
    g = -torch.rand(1, tokens, HEADS, generator=draw)
    beta = torch.rand(1, tokens, HEADS, generator=draw).bfloat16()

    def run(start: int, end: int, slot: int, bounds: tuple[int, int] | None = None) -> torch.Tensor:
        part = [x[:, start:end].contiguous() for x in (q, k, v, g, beta)]
        cu_seqlens = torch.tensor(bounds or (0, end - start), dtype=torch.int32)
        slots = torch.tensor([slot], dtype=torch.int32)
        op = torch.ops._C.chunk_gated_delta_rule_cpu
        return op(*part, pool, True, cu_seqlens, False, True, slots)[0][0]

    return run


def make_ssd(tokens: int, pool: torch.Tensor) -> Run:
    """vLLM's Mamba-2 scan, token by token; pool [slots, H, P, N] float32."""
    pytest.importorskip("vllm._C", reason="needs vLLM for CPUs")
    draw = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, HEADS, DIM, generator=draw).bfloat16()
    b, c = (torch.randn(tokens, KEY_HEADS, DIM, generator=draw).bfloat16() for _ in range(2))
    dt = torch.rand(tokens, HEADS, generator=draw)
    a = -torch.arange(1, HEADS + 1).float()

    def run(start: int, end: int, slot: int) -> torch.Tensor:
        out = torch.empty(end - start, HEADS, DIM, dtype=x.dtype)
        cu_seqlens = torch.tensor([0, end - start], dtype=torch.int32)
        x_, dt_, b_, c_ = (each[start:end].contiguous() for each in (x, dt, b, c))
        op = torch.ops._C.mamba_chunk_scan_fwd_cpu
        op(out, pool[slot : slot + 1], x_, dt_, a, b_, c_, None, None, cu_seqlens)
        return out

    return run


def make_pool() -> torch.Tensor:
    return torch.randn(SLOTS, HEADS, DIM, DIM, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize(("make_run", "grid"), [(make_gdn, 64), (make_ssd, 1)])
@pytest.mark.parametrize("tokens", [40, 200])
def test_output_final_state_and_export_are_exact(
    make_run: Callable[[int, torch.Tensor], Run], grid: int, tokens: int
) -> None:
    pool = make_pool()
    run, start = make_run(tokens, pool), pool.clone()
    whole = run(0, tokens, SLOT)
    final = pool[SLOT].clone()
    offsets = {0, 1, 3, 37, 63, 64, 65, 127, 128, 150, 192, 199, tokens - 1, tokens}
    for offset in sorted(each for each in offsets if each <= tokens):
        pool.copy_(start)
        truncated = run(0, offset, SLOT) if offset else whole[:0]
        state = pool[SLOT].clone()
        pool.copy_(start)

        outputs = export_by_split(
            run, offset, tokens, grid, SLOT, EXPORT_SLOT, lambda here, there: pool[there].copy_(pool[here])
        )

        assert torch.equal(torch.cat(outputs), whole)
        assert torch.equal(torch.cat(outputs)[:offset], truncated)
        assert torch.equal(pool[SLOT], final)
        assert torch.equal(pool[EXPORT_SLOT], state if offset else start[EXPORT_SLOT])
        assert torch.equal(pool[[0, 3]], start[[0, 3]])


@pytest.mark.parametrize(("start", "end"), [(0, 128), (64, 200), (64, 101), (128, 200)])
def test_bounds_within_a_batch_give_its_outputs_in_place(start: int, end: int) -> None:
    """What vLLM's kernel is asked for where one piece is most of a batch: no view is cut, no output is moved."""
    pool, tokens = make_pool(), 200
    run, before = make_gdn(tokens, pool), pool.clone()
    alone = run(start, end, SLOT)
    state = pool[SLOT].clone()
    pool.copy_(before)

    outputs = run(0, tokens, SLOT, (start, end))

    assert torch.equal(outputs[start:end], alone)
    assert torch.equal(pool[SLOT], state)
    assert torch.equal(pool[[0, 2, 3]], before[[0, 2, 3]])


@pytest.mark.parametrize(
    ("offset", "grid", "calls"),
    [
        (0, 64, ["run 0 200 1"]),
        (200, 64, ["run 0 200 1", "copy 1 2"]),
        (128, 64, ["run 0 128 1", "copy 1 2", "run 128 200 1"]),
        (150, 64, ["run 0 128 1", "copy 1 2", "run 128 150 2", "run 128 200 1"]),
        (20, 64, ["copy 1 2", "run 0 20 2", "run 0 200 1"]),
        (150, 1, ["run 0 150 1", "copy 1 2", "run 150 200 1"]),
    ],
)
def test_calls_no_more_than_needed(offset: int, grid: int, calls: list[str]) -> None:
    log: list[str] = []
    export_by_split(
        lambda start, end, slot: log.append(f"run {start} {end} {slot}"),
        offset,
        200,
        grid,
        SLOT,
        EXPORT_SLOT,
        lambda here, there: log.append(f"copy {here} {there}"),
    )
    assert log == calls


@pytest.mark.parametrize(
    ("offset", "grid", "export_slot", "message"),
    [
        (-1, 64, 2, "export offset -1: must be 0 to the chunk's 10 tokens"),
        (11, 64, 2, "export offset 11"),
        (5, 0, 2, "grid is 0: must be 1"),
        (5, 64, 1, "slot 1 is both the state's and the export's"),
    ],
)
def test_refusals_run_nothing(offset: int, grid: int, export_slot: int, message: str) -> None:
    calls: list[object] = []
    with pytest.raises(ValueError, match=message):
        export_by_split(
            lambda *call: calls.append(call),
            offset,
            10,
            grid,
            1,
            export_slot,
            lambda *call: calls.append(call),
        )
    assert calls == []
