"""Prompts of a number of tokens, by a tokenizer of words."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from speclaunch.measure.bench.measurement import request_from
from speclaunch.measure.bench.worker import generate
from speclaunch.measure.bench.worker.generate import lengthened
from tests.support.loops import rows

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


class Response:
    """An answer of `requests`."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self.closed, self._content = chunks, False, b""

    def iter_content(self, _: int) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        self.closed = True


def library(response: Response, asked: dict[str, Any]) -> Any:
    found = types.ModuleType("requests")

    def get(url: str, **options: Any) -> Response:
        asked.update(options)
        return response

    found.get = found.post = get  # type: ignore[attr-defined]
    return generate._Bounded(found)


def test_the_generators_own_questions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    good = library(Response(iter([b"{", b"}"])), asked)
    assert good.get("http://x")._content == b"{}"
    assert asked == {"timeout": 60.0, "stream": True}
    endless = Response(iter(lambda: b"x" * 65536, b""))
    with pytest.raises(ValueError, match="more than 16 MiB"):
        library(endless, {}).post("http://x", headers={})
    assert endless.closed
    streamed = Response(iter(()))
    assert library(streamed, {}).get("http://x", stream=True) is streamed
    monkeypatch.setattr(generate, "_MOST_SECONDS", -1.0)
    with pytest.raises(ValueError, match="took longer than"):
        library(Response(iter([b"x"])), {}).get("http://x")


@rows("odd", ["x", [], {}, True, 1e400, float("nan"), 10**400, -1, [["x"]]])
def test_counters_that_are_no_numbers_count_as_absent(odd: object) -> None:
    names = ("completion_tokens", "prompt_tokens", "cached_tokens", "e2e_latency", "id")
    names += ("spec_verify_ct", "spec_num_proposed_drafts", "spec_correct_drafts_histogram")
    said = {"success": True, "error": "", "latency": 1, "ttft": 1, "asked": 1, "characters": 1}
    found = request_from({**said, "meta": dict.fromkeys(names, odd)})
    assert (found.prompt, found.cached, found.verify_steps) == (0, 0, 0)
    assert found.positions == () and len(found.id) <= 200


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A library that records how tokenizers are loaded."""
    loads: list[dict[str, Any]] = []

    class AutoTokenizer:
        @staticmethod
        def from_pretrained(name: str, **options: Any) -> str:
            loads.append(options)
            return name

    library = types.ModuleType("transformers")
    library.AutoTokenizer = AutoTokenizer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", library)
    return loads


def test_the_generator_executes_no_code_of_a_tokenizer_that_a_server_names(
    transformers: list[dict[str, Any]],
) -> None:
    generate.refuse_remote_code()
    loaded = sys.modules["transformers"].AutoTokenizer.from_pretrained("m", trust_remote_code=True)
    assert loaded == "m"
    assert transformers == [{"trust_remote_code": False}]
