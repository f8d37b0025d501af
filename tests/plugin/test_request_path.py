"""When two requests' tokens are the same: never across salts, adapters or images."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.request import Request

from flashstate.core.cache import HybridCache
from flashstate.core.state import REQUEST_END, Checkpoint
from flashstate.plugin.path import FeatureNames, RequestPath
from flashstate.plugin.settings import Settings

BLOCK, HASH_BLOCK = 8, 4
init_none_hash(sha256)
NAMES = FeatureNames()
TOKENS = list(range(100, 130))


def make_path(
    tokens: list[int] = TOKENS, images: tuple[tuple[str, int, int], ...] = (), **given: Any
) -> RequestPath:
    features = [
        MultiModalFeatureSpec(None, "image", name, PlaceholderRange(offset=start, length=length), name)
        for name, start, length in images
    ]
    request = Request(
        request_id="r",
        prompt_token_ids=list(tokens),
        sampling_params=SamplingParams(max_tokens=9),
        pooling_params=None,
        mm_features=features or None,
        block_hasher=get_request_block_hasher(HASH_BLOCK, sha256),
        **given,
    )
    return RequestPath(request, BLOCK // HASH_BLOCK, NAMES)


def adapter(name: str, path: str) -> LoRARequest:
    return LoRARequest(lora_name=name, lora_int_id=1, lora_path=path)


def resumes_at(filed: RequestPath, asked: RequestPath, position: int = 21) -> int:
    cache = HybridCache(block_tokens=BLOCK, policy=Settings().make_policy(), history_tokens=1000)
    kv = [(i,) for i in range(-(-position // BLOCK))]
    cache.capture(filed, Checkpoint(position, (90, 91), REQUEST_END), kv, 0.0, room=True)
    state = cache.lookup(asked, len(asked) - 1)
    return 0 if state is None else state.position


@pytest.mark.parametrize("position", [3, 8, 16, 21, 24])
def test_same_tokens_match_and_others_do_not(position: int) -> None:
    assert resumes_at(make_path(), make_path(), position) == position
    unlike = [*TOKENS[: position - 1], 7, *TOKENS[position:]]
    assert resumes_at(make_path(), make_path(unlike), position) == 0


@pytest.mark.parametrize("position", [3, 21])
@pytest.mark.parametrize(
    "other",
    [
        {"cache_salt": "b"},
        {"cache_salt": None},
        {"cache_salt": "a", "lora_request": adapter("x", "/x")},
    ],
)
def test_salts_and_adapters_are_apart_below_a_block_too(other: dict[str, Any], position: int) -> None:
    assert resumes_at(make_path(cache_salt="a"), make_path(**other), position) == 0
    assert resumes_at(make_path(**other), make_path(**other), position) == position


def test_adapters_of_one_name_from_two_places_are_apart() -> None:
    here, there = make_path(lora_request=adapter("x", "/1")), make_path(lora_request=adapter("x", "/2"))
    assert resumes_at(here, there) == 0


@pytest.mark.parametrize("position", [12, 21])
def test_images_compare_by_content_and_place(position: int) -> None:
    def at(name: str, start: int) -> RequestPath:
        return make_path([5] * 30, ((name, start, 6),))

    assert resumes_at(at("cat", 4), at("cat", 4), position) == position
    assert resumes_at(at("cat", 4), at("dog", 4), position) == 0
    assert resumes_at(at("cat", 4), at("cat", 5), position) == 0


def test_a_state_before_an_image_serves_another_image() -> None:
    assert resumes_at(make_path([5] * 30, (("cat", 10, 6),)), make_path([5] * 30, (("dog", 10, 6),)), 7) == 7


def test_placeholders_are_no_tokens() -> None:
    path = make_path([5] * 12, (("cat", 2, 3), ("dog", 5, 3)))
    ids = list(path.tokens(0, 12))
    assert ids[:2] == [5, 5]
    assert ids[8:] == [5] * 4
    assert len(set(ids[2:8])) == 6
    assert all(token < 0 for token in ids[2:8])
    assert [path.token(i) for i in range(12)] == ids
    assert list(path.tokens(3, 7)) == ids[3:7]


def test_it_grows_with_its_request() -> None:
    path = make_path(TOKENS[:7])
    path._request.append_output_token_ids(9)
    assert len(path) == 8
    assert path.token(7) == 9
    assert path.key(1) == bytes(path._request.block_hashes[1])
