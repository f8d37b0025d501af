"""The demo with fake servers, and agents that hardly pause: python -m tests.demo.fake_demo FAULTS ARG..."""

from __future__ import annotations

from dataclasses import dataclass
from unittest.mock import patch

from flashstate.bench import run
from flashstate.demo import command
from flashstate.replay import options
from flashstate.replay.synthetic import Shape
from tests.demo.fake_engines import run_with_fakes


@dataclass(frozen=True)
class Hasty(Shape):
    """The demo's agents, without its waits."""

    gap_s: tuple[float, float] = (0.02, 0.15)
    spread_s: float = 0.3


if __name__ == "__main__":
    with patch.object(options, "Shape", Hasty):
        run_with_fakes(command.demo, run)
