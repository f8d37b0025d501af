from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashstate.core.cost import PrefillCostModel
from flashstate.simulate.presets import preset, preset_names
from flashstate.simulate.timing import TimeModel, TimingError, time_model


def make_times(**values: float) -> TimeModel:
    return TimeModel.from_json(
        {"decode_step_s": 0.01, "decode_sequence_s": 0.001, "decode_token_s": 1e-6, **values}
    )


def test_a_decode_step_is_a_floor_and_parts_for_sequences_and_context() -> None:
    assert make_times().decode_s(batch=4, context=2000) == pytest.approx(0.010 + 4 * 0.001 + 0.002)
    assert make_times().decode_s(batch=0, context=0) == 0.0


def test_context_grows_by_a_token_a_sequence_and_step() -> None:
    # 100, 102 and 104 tokens of context.
    assert make_times().decode_s(batch=2, context=100, steps=3) == pytest.approx(3 * 0.012 + 306e-6)


@given(
    batch=st.integers(1, 64),
    context=st.integers(0, 10_000_000),
    first=st.integers(1, 500),
    second=st.integers(1, 500),
)
def test_many_steps_take_as_long_as_one_after_another(
    batch: int, context: int, first: int, second: int
) -> None:
    times = make_times()
    apart = times.decode_s(batch, context, first) + times.decode_s(batch, context + batch * first, second)
    assert times.decode_s(batch, context, first + second) == pytest.approx(apart)


@given(
    batch=st.integers(1, 64),
    context=st.integers(0, 10_000_000),
    seconds=st.floats(1e-3, 1e3),
    most=st.integers(1, 5000),
)
def test_steps_until_are_the_fewest(batch: int, context: int, seconds: float, most: int) -> None:
    times = make_times()
    steps = times.steps_until(batch, context, seconds, most)
    assert 1 <= steps <= most
    assert steps == most or times.decode_s(batch, context, steps) >= seconds
    assert steps == 1 or times.decode_s(batch, context, steps - 1) < seconds


@pytest.mark.parametrize(
    ("prompt_a_gpu", "hits", "output", "decoding"),
    [(4.74e6, 0.87, 61.7e3, 20), (1.54e6, 0.30, 22.0e3, 15)],
    ids=["FlashState", "vLLM"],
)
def test_glm_is_just_busy_at_the_published_operating_points(
    prompt_a_gpu: float, hits: float, output: float, decoding: int
) -> None:
    """Tokens a minute at 48 sessions as published, decoding requests by Little's law: see the preset."""
    times, context = time_model("glm-5.3-flash", PrefillCostModel()), 140_000
    computed = 2 * prompt_a_gpu / 60 * (1 - hits)
    prefill = computed * times.prefill.seconds(context, context + 1)
    decode = output / 60 / decoding * times.decode_s(decoding, decoding * context)
    assert prefill + decode == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize("name", preset_names())
def test_every_geometry_has_times_of_its_own(name: str) -> None:
    cost = PrefillCostModel(1e-5, 1e-6)
    times = time_model(name, cost)
    assert times.prefill == cost
    assert times.long_prefill_tokens % preset(name).block_tokens == 0
    others = {time_model(other, cost).decode_step_s for other in preset_names()}
    assert len(others) == len(preset_names())


def test_a_model_read_back_from_a_file_is_the_same(tmp_path: Path) -> None:
    times = make_times(max_sequences=7)
    file = tmp_path / "times.json"
    file.write_text(json.dumps(times.as_json()))
    assert TimeModel.from_file(file) == times


def test_a_file_may_name_some_fields_only(tmp_path: Path) -> None:
    file = tmp_path / "times.json"
    file.write_text('{"decode_step_s": 0.02, "prefill": {"d": 1e-5, "e": 0}}')
    times = TimeModel.from_file(file)
    assert times.decode_step_s == 0.02
    assert times.prefill == PrefillCostModel(1e-5, 0.0)
    assert times.decode_sequence_s == TimeModel().decode_sequence_s


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting"),
        ("[1]", "not an object"),
        ('{"speed": 1}', "'speed': unknown"),
        ('{"decode_step_s": -1}', "must be finite and 0 or more"),
        ('{"decode_step_s": NaN}', "must be finite and 0 or more"),
        ('{"decode_step_s": "fast"}', "not numbers"),
        ('{"decode_step_s": 0, "decode_sequence_s": 0}', "one must be above"),
        ('{"gpus": 1.5}', "must be a whole number"),
        ('{"gpus": Infinity}', "must be a whole number"),
        ('{"gpus": 0}', "must be 1 or more"),
        ('{"gpus": true}', "not numbers"),
        ('{"prefill": 3}', "not numbers"),
        ('{"prefill": {"d": 1}}', "missing"),
        ('{"prefill": {"d": -1, "e": 0}}', "both must be finite"),
        ('{"max_batched_tokens": 100}', "must not be below max_sequences"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "times.json"
    file.write_text(text)
    with pytest.raises(TimingError, match=reason) as raised:
        TimeModel.from_file(file)
    assert str(raised.value).startswith(f"{file}: ")
    assert "\n" not in str(raised.value)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(TimingError, match="No such file"):
        TimeModel.from_file(tmp_path / "none.json")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    fifo = tmp_path / "times.json"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path):
        with pytest.raises(TimingError, match="is not a regular file"):
            TimeModel.from_file(path)


def test_chunks_of_a_few_tokens_are_refused() -> None:
    with pytest.raises(TimingError, match="long_prefill_tokens 63: must be 64 or more"):
        TimeModel(long_prefill_tokens=63)
