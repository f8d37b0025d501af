"""Leaf-last that keeps superseded states for some turns, for clients that edit their context."""

from flashstate.core.policies.leaf_last import LeafLast
from flashstate.core.state import RecoveryUnit


class KeepSuperseded(LeafLast):
    """A superseded state becomes inner only k turns later (FlashState, appendix E: k = 2)."""

    name = "keep-superseded"

    def follow(self, unit: RecoveryUnit, path_end: int, *, ended: bool, nearest: bool) -> bool:
        unit.turns_above += ended
        return ended and unit.turns_above == self.settings.keep_superseded_turns + 1

    def is_superseded(self, unit: RecoveryUnit) -> bool:
        return super().is_superseded(unit) and unit.turns_above > self.settings.keep_superseded_turns
