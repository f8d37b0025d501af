"""Words that the fit and the generator share."""

from __future__ import annotations

from enum import IntEnum
from itertools import combinations
from typing import Final

STOPS: Final = ("tool_use", "end_turn", "")
"""The outcomes of a table of stops."""

USER: Final = "end_turn"
"""The stop after which a user goes on. Also the name of its share in `spread`."""
DROPS: Final = "drops_output"
"""The name, in `spread`, of the share of prompts that drop some of the output."""

QUANTITIES: Final = ("growth", "output", "api", "gap")
PAIRS: Final = tuple(combinations(range(len(QUANTITIES)), 2))

TOOL_RESULT: Final = "tool_result"
"""What the types of a prompt say that answers a tool call."""

WINDOW_TOKENS: Final = 210_000
"""A session whose prompts never pass this is taken to have a 200K context window; the others are long."""


class Edit(IntEnum):
    """What a prompt does to the previous one of its agent."""

    EXTENDS = 0
    """Starts with all of it, as far as whole blocks tell."""
    CUTS_ONE = 1
    """Changes its last block."""
    CUTS_FEW = 2
    """Changes its last 2 to 4 blocks."""
    CUTS_MORE = 3
    """Changes more of it, but not most."""
    SHRINKS = 4
    """Goes back to near its beginning and is much shorter: a compaction."""
    REWRITES = 5
    """Goes back to near its beginning and is about as long, or longer."""

    @property
    def is_deep(self) -> bool:
        """Whether it goes back to near the beginning."""
        return self >= Edit.SHRINKS
