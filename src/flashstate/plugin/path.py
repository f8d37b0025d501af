"""A vLLM request's tokens as the core wants them."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.v1.request import Request

_FEATURE_TOKENS = 1 << 24
"""More than any one image or audio clip has tokens."""


class FeatureNames:
    """Numbers for multimodal contents, so that their placeholder tokens compare by content. Exact: no hashing."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, identifier: str) -> int:
        """A number of its own for each content."""
        return self._numbers.setdefault(identifier, len(self._numbers))


class RequestPath:
    """A `TokenPath` over a live vLLM request. Grows with it.

    Identity is what vLLM's own block hashes take in: tokens, cache salt, LoRA adapter, multimodal contents.
    """

    __slots__ = ("_features", "_hash_ratio", "_request", "_tokens", "namespace")

    def __init__(self, request: Request, hash_ratio: int, names: FeatureNames) -> None:
        """`hash_ratio`: vLLM hash blocks in a KV block."""
        self._request = request
        self._tokens: list[int] = request._all_token_ids
        self._hash_ratio = hash_ratio
        lora = request.lora_request
        self.namespace: Hashable = (lora and (lora.lora_name, lora.lora_path), request.cache_salt)
        self._features = [_span(feature, names) for feature in request.mm_features or ()]

    def __len__(self) -> int:
        return len(self._tokens)

    def token(self, position: int) -> int:
        if self._features:
            return self.tokens(position, position + 1)[0]
        return self._tokens[position]

    def tokens(self, start: int, stop: int) -> array[int]:
        out = array("q", self._tokens[start:stop])
        for begin, end, number in self._features:
            for position in range(max(begin, start), min(end, stop)):
                # Below zero, where no token id is: content number and offset into the content.
                out[position - start] = -1 - (number * _FEATURE_TOKENS + position - begin)
        return out

    def key(self, blocks: int) -> Hashable:
        return bytes(self._request.block_hashes[blocks * self._hash_ratio - 1])


def _span(feature: Any, names: FeatureNames) -> tuple[int, int, int]:
    where = feature.mm_position
    return where.offset, where.offset + where.length, names.number(feature.identifier)
