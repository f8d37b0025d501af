"""How large a model's checkpoint and KV are, from its config.json alone, and what they take of vLLM's blocks.

A checkpoint holds, for every recurrent layer, the recurrent state in float32 and the last inputs of its convolution in
the model's 16-bit type. All sizes are those on one GPU of a tensor parallel group; with 1 GPU, of the whole model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from flashstate.models.config_fields import Config
from flashstate.models.readers import ITEM_BYTES, layers_of

_BLOCK_STEP: Final = 16
"""vLLM's attention kernels take blocks of a multiple of this many tokens."""
_LATENT_BLOCK_STEP: Final = 128
"""Its MLA kernels (Platform._align_hybrid_block_size)."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """vLLM's blocks of some length, and those that one checkpoint takes.

    `tokens`: whose KV a block holds. `block_bytes`: of that KV, all layers. A checkpoint takes `checkpoint_blocks`, the
    room of `checkpoint_tokens` tokens of KV.
    """

    tokens: int
    block_bytes: int
    checkpoint_blocks: int

    @property
    def checkpoint_tokens(self) -> int:
        """Tokens of KV that would fit in the blocks of one checkpoint."""
        return self.checkpoint_blocks * self.tokens


@dataclass(frozen=True, slots=True)
class Geometry:
    """What one sequence keeps on one of `tensor_parallel` GPUs. Layers that have both kinds count in both numbers.

    `recurrent_bytes` and `convolution_bytes`: one recurrent layer. `kv_token_bytes` and `index_token_bytes` (the sparse
    indexer's keys): one token, one attention layer. `auxiliary_bytes`: what else a checkpoint needs, all layers.
    """

    model_type: str
    recurrent_kind: str
    attention_kind: str
    tensor_parallel: int
    recurrent_layers: int
    attention_layers: int
    recurrent_bytes: int
    convolution_bytes: int
    kv_token_bytes: int
    index_token_bytes: float
    auxiliary_bytes: int
    block_step: int

    @property
    def state_bytes(self) -> int:
        """Bytes of one recurrent layer: state and convolution inputs."""
        return self.recurrent_bytes + self.convolution_bytes

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of one checkpoint, all recurrent layers, without `auxiliary_bytes`."""
        return self.recurrent_layers * self.state_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV and indexer keys that one token adds, all attention layers, to the nearest byte."""
        return round(self.attention_layers * (self.kv_token_bytes + self.index_token_bytes))

    @property
    def checkpoint_worth_tokens(self) -> int:
        """Tokens whose KV is as many bytes as one checkpoint."""
        return round(self.checkpoint_bytes / self.kv_bytes_per_token)

    @property
    def smallest_block_tokens(self) -> int:
        """Fewest tokens in a block of KV that is as large as one layer's state (vLLM rounds it up)."""
        return math.ceil(self.state_bytes / self.kv_token_bytes)

    @property
    def block_tokens(self) -> int:
        """The smallest block that vLLM would choose, tokens."""
        return math.ceil(self.smallest_block_tokens / self.block_step) * self.block_step

    @property
    def layers_a_block(self) -> int:
        """Layers that one block has room for: as many as there are of the rarer kind.

        Of the commoner kind, if that is less than half as many again (_get_kv_cache_groups_uniform_page_size).
        """
        fewer, more = sorted((self.recurrent_layers, self.attention_layers))
        return more if more < 1.5 * fewer else fewer

    @property
    def checkpoint_blocks(self) -> int:
        """Blocks that one checkpoint takes: one for each group of `layers_a_block` layers, one for auxiliary state."""
        return math.ceil(self.recurrent_layers / self.layers_a_block) + (self.auxiliary_bytes > 0)

    def blocks(self, tokens: int | None = None) -> Blocks:
        """Blocks of `tokens`, by default the smallest that vLLM would choose.

        Raises ValueError for a length that vLLM would not use.
        """
        tokens = self.block_tokens if tokens is None else tokens
        if tokens < self.block_tokens or tokens % self.block_step:
            raise ValueError(
                f"block tokens {tokens}: must be a multiple of {self.block_step}, and {self.block_tokens} or more, "
                "for one layer's state to fit"
            )
        token_bytes = self.layers_a_block * (self.kv_token_bytes + self.index_token_bytes)
        return Blocks(tokens, round(tokens * token_bytes), self.checkpoint_blocks)


def geometry(config: Config, tensor_parallel: int = 1, kv_item_bytes: int = ITEM_BYTES) -> Geometry:
    """Sizes a config.json, already parsed. `kv_item_bytes`: of one element of KV, 2 as in the model, 1 for FP8.

    Raises ValueError with one line: a model type we cannot size, a field that is missing or makes no sense, layers that
    make no hybrid, or GPUs that cannot share the heads out.
    """
    model_type, (recurrent, attention) = layers_of(config)
    if recurrent.layers < 1 or attention.layers < 1 or attention.layers >= 1.5 * recurrent.layers:
        raise ValueError(
            f"{recurrent.layers} recurrent and {attention.layers} attention layers: not a hybrid we can size"
        )
    if tensor_parallel < 1:
        raise ValueError(f"tensor parallel {tensor_parallel}: must be 1 or more")
    token_bytes = attention.token_elements_at(tensor_parallel) * kv_item_bytes
    found = Geometry(
        model_type,
        recurrent.kind,
        attention.kind,
        tensor_parallel,
        recurrent.layers,
        attention.layers,
        recurrent.state_bytes_at(tensor_parallel),
        recurrent.convolution_bytes_at(tensor_parallel),
        token_bytes,
        attention.indexer.token_bytes,
        attention.layers * attention.indexer.ring_bytes,
        _LATENT_BLOCK_STEP if attention.kind == "MLA" else _BLOCK_STEP,
    )
    if found.state_bytes < 1 or found.kv_token_bytes < 1:
        raise ValueError("its layers keep nothing: not a hybrid we can size")
    return found
