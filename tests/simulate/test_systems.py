from __future__ import annotations

import math
import re

import pytest

from flashstate.core.cost import PrefillCostModel
from flashstate.core.two_pools import TwoPoolCache
from flashstate.simulate.presets import preset
from flashstate.simulate.systems import ALL, DEFAULT_SYSTEMS, chosen, systems
from tests.simulate.sessions import make_geometry


def test_names_are_unique_and_defaults_known() -> None:
    known = systems()
    assert list(known) == [system.name for system in known.values()]
    assert set(DEFAULT_SYSTEMS) <= set(known)
    assert all(system.title and len(system.title) <= 58 for system in known.values())


def test_systems_are_chosen_by_name_each_once() -> None:
    assert [s.name for s in chosen(["gds", "flashstate", "gds"])] == ["gds", "flashstate"]
    assert [s.name for s in chosen(["gds", ALL])] == ["gds", *(name for name in systems() if name != "gds")]


def test_an_unknown_one_is_refused_with_the_names() -> None:
    with pytest.raises(
        ValueError, match=r"policy 'nonsense': unknown; one of vllm-dense, vllm-sparse, .*, or all"
    ) as e:
        chosen(["gds", "nonsense"])
    assert re.search(r"\n", str(e.value)) is None


@pytest.mark.parametrize("name", list(systems()))
def test_a_system_is_built_for_the_geometry(name: str) -> None:
    geometry = make_geometry(blocks=77, block_tokens=512, checkpoint_blocks=3).with_cost(
        PrefillCostModel(1.0, 2.0)
    )
    engine = systems()[name].build(geometry, [])
    assert engine.block_tokens == 512
    assert engine.checkpoint_blocks == (0 if name == "sglang" else 3)
    assert engine.cache.cost == geometry.cost
    assert engine.pool.capacity == {"infinite": math.inf, "sglang": round(77 / 1.9)}.get(name, 77)
    # Two runs never share what a policy learns.
    assert systems()[name].build(geometry, []).cache is not engine.cache


def test_sglang_has_the_published_pools() -> None:
    engine = systems()["sglang"].build(preset("glm-5.3-flash"), [])
    assert isinstance(engine.cache, TwoPoolCache)
    assert engine.cache.slots == 430  # published: about 430 checkpoints beside 5.9M tokens of KV
    assert engine.pool.capacity * 4352 / 1e6 == pytest.approx(5.9, rel=0.02)
