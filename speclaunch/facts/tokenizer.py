"""The vocabulary of a tokenizer: how many tokens, and a digest of which id each has."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speclaunch.facts.safe_json import (
    MAX_TOKENIZER_BYTES,
    UnreadableError,
    mapping,
    read_object,
    size,
    text,
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Number of tokens, added ones included, and a digest: equal ones are equal mappings."""

    tokens: int
    digest: str


def read_vocabulary(directory: Path) -> Vocabulary | None:
    """The vocabulary in `tokenizer.json`, else in `vocab.json`; None where neither tells."""
    try:
        if (directory / "tokenizer.json").is_file():
            found = read_object(directory / "tokenizer.json", MAX_TOKENIZER_BYTES)
            vocabulary = _of_tokenizer(found)
        else:
            vocabulary = dict(read_object(directory / "vocab.json", MAX_TOKENIZER_BYTES))
            vocabulary |= mapping(_optional(directory / "added_tokens.json"))
    except UnreadableError:
        return None
    ids = {token: at for token, at in vocabulary.items() if size(at, least=0) is not None}
    if not ids:
        return None
    joined = "\n".join(f"{at} {token!r}" for token, at in sorted(ids.items()))
    digest = hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Vocabulary(len(ids), digest)


def _of_tokenizer(found: Mapping[str, Any]) -> dict[str, Any]:
    vocabulary = mapping(found.get("model")).get("vocab")
    if isinstance(vocabulary, list):  # Unigram: a list of [token, score]
        pairs = [item for item in vocabulary if isinstance(item, list) and item]
        ids: dict[str, Any] = {str(item[0]): at for at, item in enumerate(pairs)}
    else:
        ids = dict(mapping(vocabulary))
    added = found.get("added_tokens")
    for token in added if isinstance(added, list) else ():
        content = text(mapping(token).get("content"))
        if content is not None:
            ids[content] = mapping(token).get("id")
    return ids


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.is_file() else {}
