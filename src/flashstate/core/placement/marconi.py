"""Marconi's placement (MLSys 2025): where paths branch, and where requests end."""

from __future__ import annotations

from collections.abc import Iterable

from flashstate.core.placement.base import Placement, Prompt, Spot, junction


class Marconi(Placement):
    """The request's end, and the last block boundary that the prompt shares with an earlier one."""

    name = "marconi"

    def candidates(self, prompt: Prompt) -> Iterable[Spot]:
        return (junction(prompt),)
