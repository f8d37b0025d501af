"""What write_tiny_model leaves in its folder."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from flashstate.models.geometry import geometry
from flashstate.models.tiny import FAMILIES, write_tiny_model
from flashstate.models.tokenizer import BOS_ID, EOS_ID, UNKNOWN_ID, VOCAB_SIZE, vocabulary
from flashstate.models.weights import tensor_shapes


@pytest.fixture(scope="module")
def gdn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model("gdn", tmp_path_factory.mktemp("models") / "gdn")


def test_unknown_family_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown model family 'gpt': choose one of gdn, mamba2"):
        write_tiny_model("gpt", tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_config_is_the_one_of_the_family(family: str, tmp_path: Path) -> None:
    folder = write_tiny_model(family, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    assert config == dict(FAMILIES[family].config)
    assert geometry(config).checkpoint_blocks == FAMILIES[family].checkpoint_blocks
    assert (folder / "model.safetensors").stat().st_size < 16 * 2**20


def test_the_same_family_gives_the_same_bytes(gdn: Path, tmp_path: Path) -> None:
    again = write_tiny_model("gdn", tmp_path)
    for file in gdn.iterdir():
        assert file.read_bytes() == (again / file.name).read_bytes(), file.name


def test_weights_are_readable_and_not_degenerate(gdn: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    with safetensors.safe_open(gdn / "model.safetensors", "pt") as weights:
        shapes = {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}  # noqa: SIM118
        embedding = weights.get_tensor("model.embed_tokens.weight").float()
    assert shapes == dict(tensor_shapes(FAMILIES["gdn"].config))
    assert 0.05 < float(embedding.std()) < 0.2


def test_vocabulary_has_no_duplicates() -> None:
    assert len(vocabulary()) == len(set(vocabulary())) == VOCAB_SIZE


def test_text_of_any_ids_encodes_to_the_same_ids(gdn: Path) -> None:
    tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(gdn / "tokenizer.json"))
    draw = random.Random(0)
    for _ in range(200):
        ids = [draw.randrange(VOCAB_SIZE) for _ in range(100)]
        text = tokenizer.decode(ids, skip_special_tokens=False)
        assert tokenizer.encode(text, add_special_tokens=False).ids == ids


def test_text_outside_the_vocabulary_is_unknown(gdn: Path) -> None:
    tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(gdn / "tokenizer.json"))
    assert tokenizer.encode("é").ids == [UNKNOWN_ID]
    assert UNKNOWN_ID not in tokenizer.encode("Fix main.py, line 3:\n\tprint('hi')\n").ids


def test_a_longer_chat_extends_a_shorter_one(gdn: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(gdn))
    chat = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "fix it"}]

    def ids(messages: list[dict[str, str]]) -> list[int]:
        return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))

    prompt, answer = ids(chat), [200, 300, 400, 12]
    text = tokenizer.decode(answer)
    longer = ids([*chat, {"role": "assistant", "content": text}, {"role": "tool", "content": "ok"}])
    assert prompt[0] == BOS_ID
    assert longer[: len(prompt) + 5] == [*prompt, *answer, EOS_ID]
