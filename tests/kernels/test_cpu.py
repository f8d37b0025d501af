"""The C++ recurrence: against the float64 reference, and bit for bit against itself."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from flashstate.kernels.base import ChunkInputs, ChunkOutputs, Recurrence
from flashstate.kernels.cpu import chunk_forward
from flashstate.kernels.cpu.build import compiled_library
from flashstate.kernels.cpu.library import load
from flashstate.kernels.reference import reference
from tests.kernels.make import make_inputs, poisoned, resumed, truncated, with_offsets

TOKENS = 40
EACH = pytest.mark.parametrize("recurrence", list(Recurrence))


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # calls so small only wait for a second one, where the machine is busy
    yield
    torch.set_num_threads(before)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Within `tolerance` of the largest expected value."""
    assert (actual.double() - expected).abs().max() <= tolerance * expected.abs().max()


def assert_same_bits(actual: ChunkOutputs, expected: ChunkOutputs) -> None:
    assert torch.equal(actual.output, expected.output)
    assert torch.equal(actual.final_state, expected.final_state)


def exported(outputs: ChunkOutputs) -> torch.Tensor:
    assert outputs.checkpoint is not None
    return outputs.checkpoint


def one_by_one(inputs: ChunkInputs, state: torch.Tensor, begin: int) -> ChunkOutputs:
    """The tokens of the only sequence from `begin` on, each a call of its own: decode steps."""
    outputs = []
    for token in range(begin, len(inputs.v)):
        out = chunk_forward(resumed(truncated(inputs, 0, token + 1), 0, token, state))
        state = out.final_state[0]
        outputs.append(out.output)
    return ChunkOutputs(torch.cat(outputs), state[None], None)


def operating_system_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@EACH
@pytest.mark.parametrize(
    ("key_dim", "value_dim", "heads", "key_heads"),
    [(32, 32, 4, 2), (64, 64, 2, 2), (128, 128, 2, 1), (48, 80, 3, 1), (256, 16, 2, 1), (16, 144, 1, 1)],
)
def test_agrees_with_the_reference(
    recurrence: Recurrence, key_dim: int, value_dim: int, heads: int, key_heads: int
) -> None:
    inputs = make_inputs(
        recurrence,
        lengths=(30, 1, 17, 0, 2),
        heads=heads,
        key_heads=key_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        offsets=(7, 1, 17, 0, 1),
    )
    actual, expected = chunk_forward(inputs), reference(inputs)
    assert_close(actual.output, expected.output, 2e-6)
    assert_close(actual.final_state, expected.final_state, 2e-6)
    rows = torch.tensor([0, 1, 2, 4])
    assert_close(exported(actual)[rows], exported(expected)[rows], 2e-6)


@EACH
def test_bfloat16_inputs_round_only_the_output(recurrence: Recurrence) -> None:
    inputs = make_inputs(recurrence, lengths=(25,), key_dim=64, value_dim=64, dtype=torch.bfloat16)
    wide = replace(inputs, q=inputs.q.float(), k=inputs.k.float(), v=inputs.v.float())
    narrow, full = chunk_forward(inputs), chunk_forward(wide)
    assert torch.equal(narrow.output, full.output.bfloat16())
    assert torch.equal(narrow.final_state, full.final_state)


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_offset_is_exact(recurrence: Recurrence, dtype: torch.dtype) -> None:
    inputs = make_inputs(recurrence, lengths=(TOKENS,), dtype=dtype)
    plain = chunk_forward(inputs)
    for offset in range(1, TOKENS + 1):
        out = chunk_forward(with_offsets(inputs, [offset]))
        short = chunk_forward(truncated(inputs, 0, offset))
        assert_same_bits(out, plain)
        assert torch.equal(exported(out), short.final_state)
        assert torch.equal(out.output[:offset], short.output)
        if offset < TOKENS:
            warm = chunk_forward(resumed(inputs, 0, offset, exported(out)[0]))
            assert torch.equal(warm.output, plain.output[offset:])
            assert torch.equal(warm.final_state, plain.final_state)


@EACH
def test_decode_steps_have_the_bits_of_one_chunk(recurrence: Recurrence) -> None:
    inputs = make_inputs(recurrence, lengths=(TOKENS,), value_dim=48, initial=False)
    start = chunk_forward(truncated(inputs, 0, 10))
    steps = one_by_one(inputs, start.final_state[0], begin=10)
    whole = chunk_forward(inputs)
    assert torch.equal(steps.output, whole.output[10:])
    assert torch.equal(steps.final_state, whole.final_state)


def test_sequences_do_not_meet() -> None:
    inputs = make_inputs(Recurrence.KDA, lengths=(9, 20, 1), offsets=(4, 0, 1))
    together = chunk_forward(inputs)
    for n, (begin, end) in enumerate([(0, 9), (9, 29), (29, 30)]):
        alone = chunk_forward(truncated(inputs, n, end - begin))
        assert torch.equal(together.output[begin:end], alone.output)
        assert torch.equal(together.final_state[n], alone.final_state[0])


@EACH
def test_nothing_after_the_offset_matters(recurrence: Recurrence) -> None:
    inputs = make_inputs(recurrence, lengths=(12, TOKENS), offsets=(12, 17))
    clean, bad = chunk_forward(inputs), chunk_forward(poisoned(inputs, 1, 17))
    assert torch.equal(exported(clean), exported(bad))
    assert torch.equal(clean.output[: 12 + 17], bad.output[: 12 + 17])
    assert bad.output[12 + 17 :].isnan().all()


def test_a_closed_gate_forgets_everything() -> None:
    inputs = make_inputs(Recurrence.KDA, lengths=(20,))
    inputs.log_decay[8] = -float("inf")
    fresh = replace(resumed(inputs, 0, 8, torch.empty(2, 32, 32)), initial_state=None)
    fresh.log_decay[0] = -1
    whole, rest = chunk_forward(inputs), chunk_forward(fresh)
    assert torch.equal(whole.final_state, rest.final_state)
    assert torch.equal(whole.output[8:], rest.output)


@EACH
def test_threads_do_not_show(recurrence: Recurrence) -> None:
    inputs = make_inputs(recurrence, lengths=(33, 5, 1), key_dim=128, value_dim=128, offsets=(7, 5, 0))
    torch.set_num_threads(1)
    one = chunk_forward(inputs)
    for threads in (2, 5):
        torch.set_num_threads(threads)
        many = chunk_forward(inputs)
        assert_same_bits(many, one)
        assert torch.equal(exported(many)[:2], exported(one)[:2])


def test_runs_on_the_threads_of_torch() -> None:
    torch.set_num_threads(2)
    inputs = make_inputs(Recurrence.KDA, lengths=(200,), heads=8)
    (torch.ones(512, 512) @ torch.ones(512, 512)).exp()
    before = operating_system_threads()
    chunk_forward(inputs)
    assert operating_system_threads() == before


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86 processors")
@pytest.mark.parametrize("architecture", ["-march=x86-64-v3", "-march=x86-64"])
def test_other_vector_widths_have_the_same_bits(tmp_path: Path, architecture: str) -> None:
    if "v3" in architecture and not torch.cpu._is_avx2_supported():
        pytest.skip("this processor has no AVX2")
    function = load(compiled_library((architecture,), tmp_path))
    for recurrence in Recurrence:
        inputs = make_inputs(recurrence, lengths=(21, 1), value_dim=48, offsets=(5, 1))
        native, other = chunk_forward(inputs), chunk_forward(inputs, function)
        assert_same_bits(other, native)
        assert torch.equal(exported(other), exported(native))
