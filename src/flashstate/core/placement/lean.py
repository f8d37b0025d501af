"""Few checkpoints: where agents come back to."""

from collections.abc import Iterable

from flashstate.core.placement.base import Placement, Prompt, Spot, prompt_end
from flashstate.core.state import PROMPT_END


class Lean(Placement):
    """The prompt's end and the request's."""

    name = "lean"

    def candidates(self, prompt: Prompt) -> Iterable[Spot]:
        return (prompt_end(prompt),)


class Back(Placement):
    """The request's end, and a little before the prompt's: an edit often takes the last tokens along."""

    name = "back"
    back_tokens = 192

    def candidates(self, prompt: Prompt) -> Iterable[Spot]:
        return (Spot(prompt.tokens - self.back_tokens, PROMPT_END),)
