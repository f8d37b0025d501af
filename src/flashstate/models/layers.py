"""The two kinds of layers of a hybrid model, and what tensor parallelism makes of them.

As vLLM 0.32 splits them (MambaStateShapeCalculator, ModelConfig.get_num_kv_heads): recurrent heads are shared out, and
with them the channels of their convolution; KV heads too, until each GPU has one, then they are copied; an MLA latent
is one head, so every GPU keeps all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Recurrent:
    """The recurrent layers. Bytes are those of one layer in the whole model.

    `split_by`: what tensor parallelism must divide, as (name, count). `copied_bytes`: convolution inputs that every GPU
    keeps, in addition to its share of `convolution_bytes`.
    """

    kind: str
    layers: int
    state_bytes: int
    convolution_bytes: int
    split_by: tuple[tuple[str, int], ...]
    copied_bytes: int = 0

    def state_bytes_at(self, tp: int) -> int:
        """Recurrent state of one layer on one of `tp` GPUs. Raises ValueError where it cannot be split so."""
        _check_divides(tp, self.split_by)
        return self.state_bytes // tp

    def convolution_bytes_at(self, tp: int) -> int:
        """Convolution inputs of one layer on one of `tp` GPUs. Raises ValueError where they cannot be split so."""
        _check_divides(tp, self.split_by)
        return self.convolution_bytes // tp + self.copied_bytes


@dataclass(frozen=True, slots=True)
class Indexer:
    """What sparse attention keeps beside KV, one layer, on every GPU.

    `token_bytes`: compressed keys, by token. `ring_bytes`: raw keys and scores of the group of tokens that is not
    compressed yet; a sequence has one such group, and to resume inside it they are needed.
    """

    token_bytes: float = 0.0
    ring_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention layers. `head_elements`: of keys and values (or of the latent) of one token, one KV head.

    `query_heads`: None where the config does not say. MLA has one KV head.
    """

    kind: str
    layers: int
    kv_heads: int
    head_elements: int
    query_heads: int | None = None
    indexer: Indexer = field(default_factory=Indexer)

    def token_elements_at(self, tp: int) -> int:
        """Elements of one token's KV, one layer, on one of `tp` GPUs. Raises ValueError where it cannot be split so."""
        if self.kv_heads % tp and tp % self.kv_heads:
            raise ValueError(
                f"tensor parallel {tp}: must divide the {self.kv_heads} KV heads, or be a multiple of them"
            )
        if self.query_heads is not None:
            _check_divides(tp, [("attention heads", self.query_heads)])
        return max(1, self.kv_heads // tp) * self.head_elements


def _check_divides(tp: int, counts: Iterable[tuple[str, int]]) -> None:
    for name, count in counts:
        if count % tp:
            raise ValueError(f"tensor parallel {tp}: must divide the {count} {name}")
