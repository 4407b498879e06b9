"""Prompts of a number of tokens, by a tokenizer of words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speclaunch.bench.worker.generate import lengthened

TEXTS = [f"a{n} b{n} c{n} d{n}" for n in range(5)]


class Words:
    """A token a word; `special` ones in front, as a server adds them."""

    bos_token = None

    def __init__(self, special: int = 0, template: str | None = None) -> None:
        self.chat_template = template
        self._special = special
        self._words: list[str] = []

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        words = text.split()
        self._words += [word for word in words if word not in self._words]
        special = [-1] * self._special if add_special_tokens else []
        return [*special, *(self._words.index(word) for word in words)]

    def decode(self, ids: list[int]) -> str:
        return " ".join(self._words[one] for one in ids)

    def apply_chat_template(self, turns: list[dict[str, str]], **_: object) -> str:
        return f"<user> {turns[0]['content']} <end> <assistant>"


def made(tmp_path: Path, tokenizer: Words, tokens: int) -> tuple[list[str], list[int]]:
    path = tmp_path / "prompts"
    path.write_text(json.dumps(TEXTS))
    said = lengthened(tokenizer, str(path), tokens)
    return json.loads(path.read_text()), said["tokens"]


@pytest.mark.parametrize(
    ("tokenizer", "own"), [(Words(), 0), (Words(special=1), 1), (Words(template="x"), 3)]
)
@pytest.mark.parametrize("tokens", [7, 12, 20, 33])
def test_each_prompt_has_the_tokens_that_the_server_counts(
    tmp_path: Path, tokenizer: Words, own: int, tokens: int
) -> None:
    texts, counts = made(tmp_path, tokenizer, tokens)
    assert counts == [tokens] * 5
    for text, before in zip(texts, TEXTS, strict=True):
        assert len(text.split()) == tokens - own
        assert text.endswith(before)
    assert len({text.split()[0] for text in texts}) == 5  # no two begin alike


def test_a_longer_prompt_is_cut_in_front(tmp_path: Path) -> None:
    texts, counts = made(tmp_path, Words(), 3)
    assert (texts[0], counts) == ("b0 c0 d0", [3] * 5)


def test_without_a_tokenizer_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="tokenizer"):
        lengthened(None, str(tmp_path / "prompts"), 5)
