"""Where the other systems take checkpoints, worked by hand."""

from __future__ import annotations

import pytest

from flashstate.core.placement import Prompt, make_placement
from flashstate.core.state import CHUNK_END, JUNCTION


def spots(name: str, tokens: int, resumed: int = 0, resident: int = 0) -> list[tuple[int, str]]:
    prompt = Prompt(tokens=tokens, resumed=resumed, resident=resident, block_tokens=4352)
    return [(spot.position, spot.kind) for spot in make_placement(name).spots(prompt)]


@pytest.mark.parametrize(
    ("tokens", "resumed", "resident", "expected"),
    [
        (255, 0, 0, []),
        (1000, 0, 0, [(768, CHUNK_END)]),
        (1024, 0, 0, []),  # what the end of the request will leave
        (20_000, 0, 0, [(8192, CHUNK_END), (16384, CHUNK_END), (19968, CHUNK_END)]),
        # Chunks start where the request resumes.
        (20_000, 1024, 1024, [(9216, CHUNK_END), (17408, CHUNK_END), (19968, CHUNK_END)]),
        # KV was found deeper than a state: that is where paths branch, and all that its chunk leaves.
        (20_000, 1024, 8704, [(8704, JUNCTION), (17408, CHUNK_END), (19968, CHUNK_END)]),
        (20_000, 0, 17_408, [(8192, CHUNK_END), (16384, CHUNK_END), (17408, JUNCTION)]),
    ],
)
def test_sglang(tokens: int, resumed: int, resident: int, expected: list[tuple[int, str]]) -> None:
    assert spots("sglang", tokens, resumed, resident) == expected


def test_marconi_takes_branch_points_and_request_ends() -> None:
    assert make_placement("marconi").keeps_request_end
    assert spots("marconi", 20_000) == []
    assert spots("marconi", 20_000, 0, 9000) == [(8704, JUNCTION)]
    assert spots("marconi", 20_000, 8704, 8704) == []
