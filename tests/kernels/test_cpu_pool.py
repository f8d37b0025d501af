"""The C++ recurrence in place on a pool of states, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import torch

from flashstate.kernels.base import ChunkInputs, Recurrence
from flashstate.kernels.cpu import chunk_forward, chunk_forward_in_pool
from tests.kernels.make import make_inputs

SLOTS = 12


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def make_pool(gap: int = 0) -> torch.Tensor:
    """[SLOTS, 2, 32, 32]; `gap` floats lie between slots, as other layers' states do in an engine's pages."""
    draw = torch.Generator().manual_seed(1)
    pages = torch.randn(SLOTS, 2 * 32 * 32 + gap, generator=draw)
    return pages[:, gap:].unflatten(1, (2, 32, 32))


@pytest.mark.parametrize("gap", [0, 3])
def test_states_are_read_and_left_in_their_slots(gap: int) -> None:
    inputs = make_inputs(Recurrence.KDA, lengths=(20, 1, 30, 1), offsets=(13, 0, 30, 1), initial=False)
    pool, slots, export_slots = make_pool(gap), ints(7, 2, 9, 4), ints(1, 99, 0, 11)
    before = pool.clone()
    pool[2] = float("nan")  # a slot's last owner may have left anything
    has_initial = torch.tensor([True, False, True, True])
    initial = before[slots.long()]
    initial[1] = 0

    output = chunk_forward_in_pool(inputs, pool, slots, has_initial, export_slots)

    expected = chunk_forward(replace(inputs, initial_state=initial))
    assert expected.checkpoint is not None
    assert torch.equal(output, expected.output)
    assert torch.equal(pool[slots.long()], expected.final_state)
    assert torch.equal(pool[[1, 0, 11]], expected.checkpoint[[0, 2, 3]])
    others = [3, 5, 6, 8, 10]
    assert torch.equal(pool[others], before[others])


def test_a_sequence_of_no_tokens_is_left_alone() -> None:
    inputs = make_inputs(Recurrence.KDA, lengths=(4, 0, 0), initial=False)
    pool = make_pool()
    before = pool.clone()
    chunk_forward_in_pool(inputs, pool, ints(3, 5, -1), torch.tensor([True, False, False]))
    assert torch.equal(pool[5], before[5])
    assert not torch.equal(pool[3], before[3])


def test_many_decode_steps_at_once() -> None:
    inputs = make_inputs(Recurrence.KDA, lengths=(1,) * 9, initial=False)
    pool, slots = make_pool(), ints(8, 1, 11, 0, 3, 2, 10, 5, 7)
    expected = chunk_forward(replace(inputs, initial_state=pool[slots.long()]))
    assert torch.equal(chunk_forward_in_pool(inputs, pool, slots), expected.output)
    assert torch.equal(pool[slots.long()], expected.final_state)


@dataclass
class Arguments:
    """A good call, for one argument of it to be spoilt."""

    inputs: ChunkInputs = field(
        default_factory=lambda: make_inputs(Recurrence.KDA, lengths=(5, 6), offsets=(2, 0), initial=False)
    )
    pool: torch.Tensor = field(default_factory=make_pool)
    slots: torch.Tensor = field(default_factory=lambda: ints(3, 4))
    has_initial: torch.Tensor | None = None
    export_slots: torch.Tensor | None = field(default_factory=lambda: ints(0, 0))


def with_inputs(**changed: object) -> Callable[[Arguments], Arguments]:
    return lambda good: replace(good, inputs=replace(good.inputs, **changed))


def with_arguments(**changed: object) -> Callable[[Arguments], Arguments]:
    return lambda good: replace(good, **changed)


def test_the_good_call_is_taken() -> None:
    chunk_forward_in_pool(**vars(Arguments()))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (with_arguments(slots=ints(3, 12)), r"slot 12 of sequence 1: the pool has slots 0 to 11"),
        (with_arguments(slots=ints(-1, 4)), r"slot -1 of sequence 0"),
        (with_arguments(export_slots=ints(12, 0)), r"slot 12 of sequence 0"),
        (with_arguments(slots=ints(3, 3)), r"slot 3 is written twice"),
        (with_arguments(export_slots=ints(4, 0)), r"slot 4 is written twice"),
        (with_arguments(export_slots=None), r"export_offsets or export_slots is missing"),
        (with_arguments(slots=torch.tensor([3, 4])), r"slots is torch.int64"),
        (with_arguments(has_initial=ints(1, 1)), r"has_initial is torch.int32"),
        (with_arguments(pool=make_pool().bfloat16()), r"pool is torch.bfloat16"),
        (with_arguments(pool=make_pool().transpose(2, 3)), r"pool has strides"),
        (with_inputs(export_offsets=ints(6, 0)), r"export offset 6 of sequence 0: must be 0 to its 5 tokens"),
        (with_inputs(export_offsets=ints(-1, 0)), r"export offset -1"),
        (with_inputs(cu_seqlens=ints(0, 5, 10)), r"cu_seqlens is \[0, 5, 10\]: must rise from 0 to the 11"),
        (with_inputs(cu_seqlens=ints(0, 12, 11)), r"must rise"),
        (with_inputs(cu_seqlens=ints(1, 5, 11)), r"must rise"),
        (with_inputs(initial_state=torch.zeros(2, 2, 32, 32)), r"initial_state is given"),
    ],
)
def test_refusals_name_the_value_and_write_nothing(
    spoil: Callable[[Arguments], Arguments], message: str
) -> None:
    call = spoil(Arguments())
    before = call.pool.clone()
    with pytest.raises(ValueError, match=message):
        chunk_forward_in_pool(**vars(call))
    assert torch.equal(call.pool, before)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (make_inputs(Recurrence.KDA, lengths=(3,), dtype=torch.float16), r"v is torch.float16"),
        (make_inputs(Recurrence.KDA, lengths=(3,), key_dim=24), r"k has head dimension 24"),
        (make_inputs(Recurrence.KDA, lengths=(3,), key_dim=272), r"k has head dimension 272"),
        (make_inputs(Recurrence.KDA, lengths=(3,), value_dim=40), r"v has head dimension 40"),
    ],
)
def test_types_and_dimensions_it_cannot_take(inputs: ChunkInputs, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chunk_forward(inputs)
