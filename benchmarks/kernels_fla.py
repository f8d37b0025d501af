"""The chunk kernels of Flash Linear Attention as a baseline, its own package's or vLLM's copy, if either is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch

from flashstate.kernels.base import ChunkInputs, Recurrence

FUNCTIONS = {Recurrence.GDN: "chunk_gated_delta_rule", Recurrence.KDA: "chunk_kda"}
PLACES = {
    Recurrence.GDN: (
        "fla.ops.gated_delta_rule",
        "vllm.third_party.flash_linear_attention.ops",
        "vllm.model_executor.layers.fla.ops",
    ),
    Recurrence.KDA: (
        "fla.ops.kda",
        "vllm.third_party.flash_linear_attention.ops.kda",
        "vllm.model_executor.layers.fla.ops.kda",
    ),
}


@dataclass(frozen=True)
class Baseline:
    """place: the module it is from. function: its chunk op, under the arguments of FLA."""

    place: str
    function: Callable[..., tuple[torch.Tensor, torch.Tensor]]

    def prepare(self, inputs: ChunkInputs) -> Callable[[], tuple[torch.Tensor, torch.Tensor]]:
        """A call ready to be timed; returns output [1, T, H, V] and final states, laid out as the place has them."""
        theirs = self.place.startswith("fla")
        # vLLM's copy reads a key head for several value heads; of FLA's own, only late versions do.
        repeat = inputs.v.shape[1] // inputs.k.shape[1] if theirs else 1
        state = inputs.initial_state
        arguments = {
            "q": inputs.q.repeat_interleave(repeat, dim=1)[None],
            "k": inputs.k.repeat_interleave(repeat, dim=1)[None],
            "v": inputs.v[None],
            "g": inputs.log_decay[None],
            "beta": inputs.beta[None],
            "scale": inputs.scale,
            "initial_state": state.mT.contiguous() if theirs and state is not None else state,
            "output_final_state": True,
            "cu_seqlens": inputs.cu_seqlens.long() if theirs else inputs.cu_seqlens,
        }
        return lambda: self.function(**arguments)


def find_baseline(recurrence: Recurrence) -> Baseline | str:
    """The first that can be imported, or one line on why there is none."""
    if recurrence not in FUNCTIONS:
        return f"FLA has no chunk op of {recurrence.value}"
    why = []
    for place in PLACES[recurrence]:
        try:
            return Baseline(place, getattr(import_module(place), FUNCTIONS[recurrence]))
        except Exception as error:  # an import may fail in any way where its GPU or its driver is missing
            why.append(f"{place}: {type(error).__name__}")
    return "not importable: " + "; ".join(why)
