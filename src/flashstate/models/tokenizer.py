"""A tokenizer for random weights: whatever ids a model emits, their text encodes to the same ids again.

A chat client sends text back, not ids. With this tokenizer the next turn of a conversation still begins with
exactly the tokens that the model produced: prefix reuse shows through the chat API too.

The vocabulary: eight special tokens, the printable ASCII characters, pseudo-words of a space and four letters.
"""

from __future__ import annotations

import itertools
import json
import string
from pathlib import Path
from typing import Final

VOCAB_SIZE: Final = 2048
EOS, BOS, PAD, UNKNOWN = "<|end|>", "<|begin|>", "<|pad|>", "<|unknown|>"
SPECIAL: Final = (EOS, BOS, PAD, UNKNOWN, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
EOS_ID, BOS_ID, PAD_ID, UNKNOWN_ID = range(4)

# No trimming, no date, no thinking: a longer conversation always renders to an extension of a shorter one.
CHAT_TEMPLATE: Final = (
    "{{ '<|begin|>' }}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def vocabulary() -> list[str]:
    """All tokens, in the order of their ids."""
    characters = [c for c in string.printable if c not in "\r\x0b\x0c"]
    consonants, vowels = "bcdfghjklmnpqrstvwxz", "aeiou"
    words = [" " + "".join(four) for four in itertools.product(consonants, vowels, consonants, vowels)]
    spread = (words[i * 2027 % len(words)] for i in range(len(words)))  # or all would begin with "b" to "f"
    return list(itertools.islice(itertools.chain(SPECIAL, characters, spread), VOCAB_SIZE))


def write_tokenizer(folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json into an existing folder."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    # Unigram over raw text finds the best split: no pre-tokenizer is needed, as a word outscores its letters.
    scored = [(token, -1.0 if len(token) == 5 and token not in SPECIAL else -5.0) for token in vocabulary()]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=UNKNOWN_ID, byte_fallback=False))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS,
        "bos_token": BOS,
        "pad_token": PAD,
        "unk_token": UNKNOWN,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1 << 20,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
