"""Checkpoints on a grid inside the prompt, whatever the client will do: the field's placements."""

from collections.abc import Iterable, Iterator

from flashstate.core.placement.base import Placement, Prompt, Spot, junction, last_boundary, prompt_end
from flashstate.core.state import CHUNK_END


class Dense(Placement):
    """vLLM with dense retention, as in the paper: every chunk's end, at two blocks a chunk, and the last boundary."""

    name = "dense"
    keeps_request_end = False
    chunk_blocks = 2

    def candidates(self, prompt: Prompt) -> Iterator[Spot]:
        yield last_boundary(prompt)
        step = self.chunk_blocks * prompt.block_tokens
        for position in range(prompt.resumed // step * step + step, prompt.tokens, step):
            yield Spot(position, CHUNK_END)


class Sparse(Placement):
    """vLLM 0.32's default: the last boundary, and the last boundary inside what an earlier prompt shares."""

    name = "sparse"
    keeps_request_end = False

    def candidates(self, prompt: Prompt) -> Iterable[Spot]:
        return last_boundary(prompt), junction(prompt)


class EveryN(Placement):
    """A checkpoint every 1,088 tokens: a quarter of a block of 4,352."""

    name = "every-1088"
    keeps_request_end = False
    step = 1088

    def candidates(self, prompt: Prompt) -> Iterator[Spot]:
        first = prompt.resumed // self.step * self.step + self.step
        for position in range(first, prompt.tokens, self.step):
            yield Spot(position, CHUNK_END)


class Arbitrary(Dense):
    """The paper's: vLLM's chunk ends, the prompt's end and the request's."""

    name = "asc"
    keeps_request_end = True

    def candidates(self, prompt: Prompt) -> Iterator[Spot]:
        yield prompt_end(prompt)
        yield from super().candidates(prompt)
