"""The vocabulary of a tokenizer: how many tokens, and a digest of which id each has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speclaunch.reads.safe_json import (
    MAX_CONFIG_BYTES,
    MAX_TOKENIZER_BYTES,
    UnreadableFileError,
    is_file,
    mapping,
    read_object,
    size,
    text,
)
from speclaunch.record import record

FILE = "tokenizer.json"
CONFIG = "tokenizer_config.json"
SPECIAL = "special_tokens_map.json"


@record
class Vocabulary:
    """Number of tokens, added ones included, and a digest: equal ones are equal mappings."""

    tokens: int
    digest: str


def read_vocabulary(directory: Path) -> Vocabulary | None:
    """What `get_vocab()` of the tokenizer in a directory gives; None where no file tells.

    That is the vocabulary in `tokenizer.json` (else `vocab.json`) with the tokens that it and
    `tokenizer_config.json` add. A special token that none of them gives an id gets one when the
    tokenizer is loaded: such a vocabulary is not known.
    """
    try:
        if is_file(directory / FILE):
            found = _of_tokenizer(read_object(directory / FILE, MAX_TOKENIZER_BYTES))
        else:
            found = read_object(directory / "vocab.json", MAX_TOKENIZER_BYTES)
            found |= _optional(directory / "added_tokens.json")
        config = _optional(directory / CONFIG)
        special = [*_special_tokens(config), *_special_tokens(_optional(directory / SPECIAL))]
    except UnreadableFileError:
        return None
    ids = {token: int(at) for token, at in found.items() if size(at, least=0) is not None}
    if not ids:
        return None
    for at, token in mapping(config.get("added_tokens_decoder")).items():
        content = text(mapping(token).get("content"))
        if content is not None and at.isascii() and at.isdigit() and len(at) < 10:
            ids.setdefault(content, int(at))
    if any(token not in ids for token in special):
        return None
    # escaped, sorted by token: a total order, and no two mappings are spelled alike
    spelled = json.dumps(ids, sort_keys=True)
    digest = hashlib.sha256(spelled.encode("ascii")).hexdigest()[:32]
    return Vocabulary(len(ids), digest)


def _of_tokenizer(found: Mapping[str, Any]) -> dict[str, Any]:
    vocabulary = mapping(found.get("model")).get("vocab")
    if isinstance(vocabulary, list):  # Unigram: [token, score] pairs, the id is the place
        ids: dict[str, Any] = {
            item[0]: at
            for at, item in enumerate(vocabulary)
            if isinstance(item, list) and item and isinstance(item[0], str)
        }
    else:
        ids = dict(mapping(vocabulary))
    added = found.get("added_tokens")
    for token in added if isinstance(added, list) else ():
        content = text(mapping(token).get("content"))
        if content is not None:
            ids[content] = mapping(token).get("id")
    return ids


def _special_tokens(config: Mapping[str, Any]) -> Iterator[str]:
    """`bos_token` and its like, and the lists of more; each a text, or an object with one."""
    said = [value for key, value in config.items() if key.endswith("_token")]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        more = config.get(key)
        said += list(more.values()) if isinstance(more, dict) else []
        said += more if isinstance(more, list) else []
    for token in said:
        content = text(token) or text(mapping(token).get("content"))
        if content is not None:
            yield content


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path, MAX_CONFIG_BYTES) if is_file(path) else {}
