"""Reads a checkpoint's facts from its directory, and writes them to a file.

Equal facts give equal bytes, and the file is written atomically. A long table of quantized layers
is stored as ranges, which `checkpoint_file.py` expands.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from speclaunch.core import UnreadableFileError, is_file, lazy, read_object, replacing
from speclaunch.engine.facts.checkpoint_file import (
    FORMAT,
    LONG,
    MOST_BYTES_OF_FILE,
    SHORT,
    CheckpointFile,
    expanded,
    file_of,
    read_file,
    refuse_a_way_out,
)
from speclaunch.engine.facts.facts import PartialConfig
from speclaunch.engine.facts.read_checkpoint import QUANTIZATION_FILE, from_config
from speclaunch.engine.facts.tensors import described, must_be_inside
from speclaunch.engine.facts.weight_files import (
    INDEX,
    TensorHeader,
    loaded_files,
    read_header,
    read_vocabulary,
    read_weights,
)

_NUMBER = lazy(r"(?<=\.)\d+(?=\.|$)")
_BRACE = lazy(r"[{}\[\]]")
_LONG_TABLE = 40
"""Maximum number of names in a table that is stored unchanged."""


def shortened(config: Any) -> Any:
    """Return the config with its long layer tables converted to ranges.

    A table remains unchanged if its ranges would not expand to it.
    """
    if not isinstance(config, dict):
        return config
    found: dict[str, Any] = {}
    for key, value in config.items():
        if key == LONG and isinstance(value, dict) and len(value) > _LONG_TABLE:
            short = _ranges_of(value)
            found[LONG if short is None else SHORT] = value if short is None else short
        else:
            found[key] = shortened(value)
    return found


def _ranges_of(table: Mapping[str, Any]) -> dict[str, Any] | None:
    if _BRACE.search("".join(table)):
        return None
    found = ranges(table)
    try:
        return found if expanded({SHORT: found}) == {LONG: table} else None
    except ValueError:
        return None


def ranges(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table's values by patterns with ranges (`[0-60]`) that match only its names."""
    groups: dict[tuple[str, str], list[tuple[int, ...]]] = defaultdict(list)
    for name, value in table.items():
        numbers = tuple(int(number) for number in _NUMBER.findall(name))
        groups[_NUMBER.sub("{}", name), json.dumps(value, sort_keys=True)].append(numbers)
    return {
        template.format(*(_range(part) for part in parts)): json.loads(value)
        for (template, value), every in groups.items()
        for parts in _blocks(every)
    }


def _blocks(numbers: Iterable[tuple[int, ...]]) -> Iterator[tuple[range, ...]]:
    """Yield products of ranges that together cover exactly the tuples in `numbers`."""
    rest: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for first, *later in filter(None, numbers):
        rest[first].append(tuple(later))
    if not rest:
        yield ()
        return
    inner = {first: tuple(_blocks(later)) for first, later in rest.items()}
    run: list[int] = []
    for first in sorted(inner):
        if run and (first != run[-1] + 1 or inner[first] != inner[run[-1]]):
            yield from ((range(run[0], run[-1] + 1), *block) for block in inner[run[-1]])
            run = []
        run.append(first)
    yield from ((range(run[0], run[-1] + 1), *block) for block in inner[run[-1]])


def _range(part: range) -> str:
    return str(part[0]) if len(part) == 1 else f"[{part[0]}-{part[-1]}]"


_NEEDLESS = lazy(
    r"_name_or_path|_commit_hash|id2label|label2id|task_specific_params|bad_words_ids"
    r"|generation_config|pruned_heads|finetuning_task"
)
"""Matches config keys that no rule reads, and whose values are long or identify a machine."""
_SECRET = lazy(
    r"(?:^|_)(?:(?:api|access|auth|hub|hf|secret|private|bearer)_?(?:key|token)|secret"
    r"|password|passwd|credentials?)$",
    re.IGNORECASE,
)
"""Matches config keys whose values are secrets, but not `mask_token`."""
_TOKEN = lazy(r"\b(?:hf|gh[a-z]|sk|glpat)[_-][A-Za-z0-9_-]{16,}")
"""Matches access tokens, such as the hub's, by their prefixes anywhere in a string."""
_MOST_DEPTH = 50
MOST_HEADERS = 4
"""Maximum number of weight files whose headers are stored. Checkpoints with more files list their
tensors in an index."""


def recorded(
    directory: Path,
    name: str,
    *,
    source: str,
    read: str,
    revision: str | None = None,
    tensors: Mapping[str, TensorHeader] | None = None,
) -> CheckpointFile:
    """Return the publishable facts of checkpoint `name` in a directory: no weights, secrets or
    paths.

    `read`: the date, YYYY-MM-DD. `tensors`: the headers, if the files are not in the directory.
    Raises UnreadableFileError.
    """
    config = read_object(directory / "config.json")
    public, left = publishable(config)
    quantization_file: Mapping[str, Any] = {}
    if is_file(directory / QUANTIZATION_FILE):
        quantization_file, hidden = publishable(read_object(directory / QUANTIZATION_FILE))
        if hidden:
            raise UnreadableFileError(f"{QUANTIZATION_FILE} contains a path or a secret")
    weights = read_weights(directory)
    if tensors and weights.names is None:
        weights = replace(weights, names=frozenset(tensors))
    vocabulary = read_vocabulary(directory)
    layers = from_config(name, PartialConfig(name, public, left)).field_or_none("num_hidden_layers")
    return CheckpointFile(
        name,
        "disk",
        source,
        read,
        public,
        tuple(sorted(left)),
        confidence="high",
        revision=revision,
        quantization_file=quantization_file,
        weight_bytes=weights.total_bytes,
        weights_exact=weights.total_bytes is not None,
        weights_source=_source(directory) if weights.total_bytes is not None else None,
        mtp_weights=weights.has_mtp(layers),
        has_token_map=weights.has_token_map(),
        tokenizer_size=vocabulary.tokens if vocabulary else None,
        tokenizer_digest=vocabulary.digest if vocabulary else None,
        tensors=described(tensors_in(directory) if tensors is None else tensors),
    )


def publishable(config: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Return a config without private keys, and the keys that were removed.

    Removes secrets, absolute paths, addresses, and long values that no rule reads. Removed keys
    count as unread. Raises UnreadableFileError.
    """
    left: set[str] = set()
    public: dict[str, Any] = _without(config, left, 0)
    return public, left


def _without(value: Any, left: set[str], depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise UnreadableFileError(f"config.json is nested deeper than {_MOST_DEPTH} levels")
    if isinstance(value, dict):
        found = {}
        for key, inner in value.items():
            if _NEEDLESS.fullmatch(key) or _is_private(key, inner):
                left.add(key)
            else:
                found[key] = _without(inner, left, depth + 1)
        return found
    if isinstance(value, list):
        return [_without(inner, left, depth + 1) for inner in value]
    return value


def _is_private(key: str, value: object) -> bool:
    items = value if isinstance(value, list) else [value]
    texts = [item for item in items if isinstance(item, str)]
    if _SECRET.search(key) and any(texts):
        return True
    return any(_is_place(item) or _TOKEN.search(item) for item in texts)


def _is_place(value: str) -> bool:
    return value.startswith(("/", "~", "\\", "./", "../")) or "://" in value or value[1:3] == ":\\"


def tensors_in(directory: Path) -> Mapping[str, TensorHeader]:
    """Return the directory's tensors; empty above `MOST_HEADERS` files or if one is unreadable."""
    files = loaded_files(directory)
    found: dict[str, TensorHeader] = {}
    try:
        for file in files if len(files) <= MOST_HEADERS else ():
            must_be_inside(file, directory)
            found |= read_header(file)
    except UnreadableFileError:
        return {}
    return found


def _source(directory: Path) -> str:
    return "total_size of the index" if is_file(directory / INDEX) else "size of the files"


_WIDE = 100


def text_of(found: CheckpointFile) -> str:
    """Return the text of the facts file. Unknown facts are omitted.

    Top-level keys follow the format's order; keys of nested objects are sorted. The text is ASCII
    and ends with a newline.
    """
    weights: dict[str, Any] = {}
    if found.weight_bytes is not None:
        weights = {"bytes": found.weight_bytes, "exact": found.weights_exact}
        weights |= _known({"source": found.weights_source})
    record = {
        "format": FORMAT,
        "model": found.model,
        "kind": found.kind,
        "source": found.source,
        "also": list(found.also),
        "read": found.read,
        "confidence": found.confidence,
        "revision": found.revision,
        "config": shortened(found.config),
        "unread": sorted(found.unread),
        "quantization_file": shortened(found.quantization_file),
        "weights": weights,
        "mtp_weights": found.mtp_weights,
        "has_token_map": found.has_token_map,
        "gated": found.gated,
        "tokenizer": _known({"tokens": found.tokenizer_size, "digest": found.tokenizer_digest}),
        "tensors": found.tensors,
        "draft": found.draft,
    }
    return _text(_known(record), 0) + "\n"


def store_facts(folder: Path, found: CheckpointFile) -> tuple[Path, bool]:
    """Write the facts below a folder. Return the path, and True if the file has changed.

    A file that differs only in its date is left unchanged. The new file is read back before it
    replaces the old one. After UnreadableFileError or OSError the old file is unchanged. Nothing is
    written outside the folder.
    """
    path = file_of(folder, found.model)
    if path is None:
        raise UnreadableFileError(f"{found.model!r} is not a name of the form ORGANIZATION/NAME")
    refuse_a_way_out(folder, path)
    with contextlib.suppress(UnreadableFileError):
        before = read_file(path, found.model)
        if replace(before, read=found.read) == found:
            return path, False
    data = text_of(found).encode("ascii")
    if len(data) > MOST_BYTES_OF_FILE:
        raise UnreadableFileError(f"the facts of {found.model} exceed {MOST_BYTES_OF_FILE} bytes")
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_a_way_out(folder, path)
    with replacing(path, data, 0o666) as temporary:
        if read_file(temporary, found.model) != found:
            raise UnreadableFileError(f"the facts of {found.model} change when they are read back")
    return path, True


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value not in (None, [], {})}


def _text(value: Any, depth: int) -> str:
    compact = json.dumps(value, sort_keys=depth > 0)
    if not isinstance(value, Mapping) or (depth > 0 and len(compact) + depth <= _WIDE):
        return compact
    inside = " " * (depth + 1)
    items = sorted(value.items()) if depth else value.items()
    lines = (f"{inside}{json.dumps(key)}: {_text(inner, depth + 1)}" for key, inner in items)
    return "{\n" + ",\n".join(lines) + "\n" + " " * depth + "}"
