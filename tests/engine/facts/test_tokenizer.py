"""The vocabulary that a tokenizer will have once it is loaded.

That these mappings are what `AutoTokenizer.from_pretrained(…).get_vocab()` gives was seen with
transformers 4.57 and 5.19, for tokenizers of these kinds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speclaunch.engine.facts.weight_files import Vocabulary, read_vocabulary

WORDS = {"a": 0, "b": 1, "ab": 2}


def directory(path: Path, **files: Any) -> Path:
    path.mkdir(exist_ok=True)
    for name, value in files.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


def vocabulary(path: Path, **files: Any) -> Vocabulary:
    found = read_vocabulary(directory(path, **files))
    assert found is not None
    return found


def bpe(words: dict[str, Any], added: list[Any] | None = None) -> dict[str, Any]:
    return {"model": {"type": "BPE", "vocab": words}, "added_tokens": added or []}


def test_the_same_mapping_is_the_same_vocabulary(tmp_path: Path) -> None:
    plain = vocabulary(tmp_path / "bpe", tokenizer=bpe(WORDS))
    assert plain.tokens == 3
    assert vocabulary(tmp_path / "other", tokenizer=bpe(dict(reversed(WORDS.items())))) == plain
    assert vocabulary(tmp_path / "slow", vocab=WORDS) == plain
    unigram = {"model": {"vocab": [["a", -1.0], ["b", -2.0], ["ab", -3.0]]}}
    assert vocabulary(tmp_path / "unigram", tokenizer=unigram) == plain
    swapped = vocabulary(tmp_path / "swapped", tokenizer=bpe({**WORDS, "a": 1, "b": 0}))
    assert swapped.digest != plain.digest


def test_where_a_token_is_added_does_not_matter(tmp_path: Path) -> None:
    inside = vocabulary(tmp_path / "1", tokenizer=bpe(WORDS, [{"content": "<s>", "id": 3}]))
    assert inside.tokens == 4
    decoder = {"added_tokens_decoder": {"3": {"content": "<s>"}}}
    assert vocabulary(tmp_path / "2", tokenizer=bpe(WORDS), tokenizer_config=decoder) == inside
    assert vocabulary(tmp_path / "3", vocab=WORDS, added_tokens={"<s>": 3}) == inside
    # a token that has an id already keeps it
    again = {"added_tokens_decoder": {"9": {"content": "a"}, "x": {"content": "y"}, "7": []}}
    path = directory(tmp_path / "1", tokenizer_config=again)
    assert read_vocabulary(path) == inside


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": {"pad_token": "[PAD]"}},
        {"tokenizer_config": {"pad_token": {"content": "[PAD]"}}},
        {"tokenizer_config": {"additional_special_tokens": ["[PAD]"]}},
        {"tokenizer_config": {"extra_special_tokens": {"image_token": "[PAD]"}}},
        {"special_tokens_map": {"pad_token": "[PAD]"}},
    ],
)
def test_a_special_token_without_an_id_gets_one_nobody_knows(
    tmp_path: Path, files: dict[str, Any]
) -> None:
    assert read_vocabulary(directory(tmp_path, tokenizer=bpe(WORDS), **files)) is None
    numbered = bpe(WORDS, [{"content": "[PAD]", "id": 3}])
    assert read_vocabulary(directory(tmp_path, tokenizer=numbered, **files)) is not None


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"model": []},
        {"model": {"vocab": "ab"}},
        {"model": {"vocab": {"a": "0", "b": True, "c": -1, "d": None}}},
        {"model": {"vocab": [[], [1], "a", None]}, "added_tokens": {"content": "a"}},
    ],
)
def test_what_is_no_vocabulary(tmp_path: Path, value: Any) -> None:
    assert read_vocabulary(directory(tmp_path, tokenizer=value)) is None


def test_odd_tokens_have_a_digest(tmp_path: Path) -> None:
    odd = {"\ud800": 0, "\n": 1, "'\"": 2, "": 3, "é": 4}
    assert vocabulary(tmp_path, tokenizer=bpe(odd)).tokens == 5


def test_there_may_be_none(tmp_path: Path) -> None:
    assert read_vocabulary(tmp_path) is None
    (tmp_path / "tokenizer.json").mkdir()
    assert read_vocabulary(tmp_path) is None
