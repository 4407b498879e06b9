"""Files of a checkpoint: digests, safetensors headers, weights index, tokenizer vocabulary.

Each file is hashed once, and its digest is cached with the file's size and modification time.

A safetensors file consists of an 8-byte length, a JSON header of that length, and the tensor data.
A header may be malicious, so reading is bounded and its content is not trusted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert

from speclaunch.core import (
    MAX_CONFIG_BYTES,
    MAX_INDEX_BYTES,
    MAX_TOKENIZER_BYTES,
    MOST_BYTES,
    LaunchError,
    UnreadableFileError,
    is_directory,
    is_file,
    lazy,
    locked,
    mapping,
    open_regular,
    parse_object,
    read_json,
    read_object,
    read_start,
    reads,
    size,
    speclaunch_home,
    text,
    write_json,
)

_MOST_DEEP = 4
_ENTRIES = 20_000
"""Maximum number of stored digests; the oldest are dropped."""
_THREADS = 4
_DESCRIBES = ".md"
"""Suffix of documentation files, which are not hashed."""


class HashedFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint file; `name` is relative to the checkpoint's directory."""

    name: str
    size: int
    hash: str
    """`sha256:…`, of the file's content."""


def hash_files(path: Path, *, verify: bool = False) -> tuple[HashedFile, ...]:
    """Return a checkpoint's files with digests, sorted by name. `path`: its directory, or a file.

    `verify`: ignore cached digests. Raises LaunchError for a file that cannot be read.
    """
    stored = _stored()
    try:
        found = dict(_files(path)) if path.is_dir() else {path.name: path}
        states = {name: _state(file) for name, file in found.items()}
        due = {
            name: file
            for name, file in found.items()
            if verify or stored.get(os.path.realpath(file), ())[:2] != states[name]
        }
        with ThreadPoolExecutor(_THREADS) as pool:
            digests = dict(zip(due, pool.map(_digest, due.values()), strict=True))
    except OSError as error:
        raise LaunchError(f"cannot read {error.filename}: {error.strerror}") from error
    fresh = {
        os.path.realpath(file): (*states[name], digests[name])
        for name, file in due.items()
        if _state(file) == states[name]  # otherwise it changed during the read
    }
    if fresh:
        _store(fresh)
    return tuple(
        HashedFile(name, states[name][0], digests.get(name) or stored[os.path.realpath(file)][2])
        for name, file in sorted(found.items())
    )


def revision_of_files(directory: Path) -> str | None:
    """Return the hub commit that a directory was downloaded from; None if unknown.

    A snapshot in the hub's cache is named after its commit. `hf download --local-dir` stores the
    commit in `.cache/huggingface/download/FILE.metadata` (huggingface_hub 0.23 to 1.x,
    _local_folder.py).
    """
    if directory.parent.name == "snapshots":
        return directory.name
    note = directory / ".cache" / "huggingface" / "download" / "config.json.metadata"
    try:
        first = read_start(note, 100)[0].split(b"\n")[0].decode("ascii")
    except (UnreadableFileError, UnicodeDecodeError):
        return None
    return first.strip() or None


def _files(directory: Path, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Path]]:
    """Yield the regular files below a directory, except hidden and `.md` files. Follows links."""
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        name, path = f"{prefix}{entry.name}", Path(entry.path)
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and depth < _MOST_DEEP:
            yield from _files(path, f"{name}/", depth + 1)
        elif entry.is_file() and not name.endswith(_DESCRIBES):
            yield name, path


def _state(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _digest(file: Path) -> str:
    descriptor, _ = open_regular(file)
    with os.fdopen(descriptor, "rb") as opened:
        return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"


_Entries = dict[str, tuple[int, int, str]]
"""Size in bytes, modification time in nanoseconds, and digest, by resolved path."""


def _path() -> Path:
    return speclaunch_home() / "state" / "file-hashes.json"


def _stored() -> _Entries:
    try:
        return convert((read_json(_path()) or {}).get("files", {}), _Entries)
    except ValidationError:
        return {}


def _store(fresh: _Entries) -> None:
    """Add digests to the cache. After a failed write, the files are hashed again next time."""
    with contextlib.suppress(OSError), locked(_path().with_suffix(".lock")):
        entries = {**_stored(), **fresh}
        latest = dict(list(entries.items())[-_ENTRIES:])
        write_json(_path(), {"version": 1, "files": latest})


MOST_HEADER_BYTES = 100_000_000
"""Maximum header size of the format. The engine's reader rejects a longer header (safetensors 0.4
and later, MAX_HEADER_SIZE)."""
MOST_READ_BYTES = 32 << 20
"""Maximum header size that speclaunch reads, with room for about 250,000 tensors. The longest
published headers are a tenth of this size."""
MOST_TENSORS = 200_000
"""Maximum number of tensors that speclaunch reads per file. A header with more tensors is not
parsed."""
_MOST_DIMENSIONS = 32
METADATA = "__metadata__"

BITS: Mapping[str, int] = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
}
"""Bits per element of each type (`Dtype` of safetensors 0.7)."""


class BrokenHeaderError(UnreadableFileError):
    """Error: the file violates the format. The engine's reader rejects it, too."""


class TensorHeader(Struct, frozen=True):
    """Header entry of one tensor. `start` and `end` are byte offsets in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


def read_names(file: Path) -> dict[str, Any]:
    """Return a header's entries by tensor name, unchecked and without `__metadata__`.

    Raises UnreadableFileError if the header exceeds speclaunch's limit, BrokenHeaderError if it is
    invalid.
    """
    return _raw(file)[0]


def read_header(file: Path) -> dict[str, TensorHeader]:
    """Return the tensors of a safetensors file, checked against the file's size.

    Raises UnreadableFileError if the header exceeds speclaunch's limit, and BrokenHeaderError if it
    violates the format: invalid offsets, overlaps, gaps, or a size that does not match shape and
    type.
    """
    raw, data_at, file_bytes = _raw(file)
    return checked(raw, data_at, file_bytes, file.name)


def checked(
    raw: Mapping[str, Any], data_at: int, file_bytes: int, name: str
) -> dict[str, TensorHeader]:
    """Return a header's tensors, with data from offset `data_at`. Raises BrokenHeaderError."""
    found = {tensor: _tensor(tensor, entry, data_at, name) for tensor, entry in raw.items()}
    at = data_at
    for tensor, header in sorted(found.items(), key=lambda item: (item[1].start, item[1].end)):
        if header.start != at:
            fault = "overlap" if header.start < at else "leave a gap"
            raise BrokenHeaderError(f"{name}: its tensors {fault} at {_short(tensor)}")
        at = header.end
    if at != file_bytes:
        raise BrokenHeaderError(f"{name} has {file_bytes} bytes, but its header describes {at}")
    return found


def parse(start: bytes, name: str) -> dict[str, Any]:
    """Return the header from the first bytes of a file, which must include the complete header.

    Raises UnreadableFileError, BrokenHeaderError.
    """
    data = start[8:]
    if data.count(b'"data_offsets"') > MOST_TENSORS:
        raise UnreadableFileError(f"{name} has more than {MOST_TENSORS} tensors, too many to read")
    try:
        found = parse_object(data, name)
    except UnreadableFileError as error:
        raise BrokenHeaderError(f"{error}") from None
    if len(found) > MOST_TENSORS:
        raise UnreadableFileError(f"{name} has more than {MOST_TENSORS} tensors, too many to read")
    found.pop(METADATA, None)
    return found


def header_bytes(start: bytes, file_bytes: int, name: str) -> int:
    """Return the header's length, from the first 8 bytes. Raises the same errors as `parse`."""
    if len(start) < 8:
        raise BrokenHeaderError(f"{name} is too short")
    (length,) = struct.unpack("<Q", start[:8])
    if length > MOST_HEADER_BYTES:
        raise BrokenHeaderError(
            f"{name} has a header of {length} bytes, more than the format allows"
        )
    if 8 + length > file_bytes:
        raise BrokenHeaderError(f"{name} is shorter than its header of {length} bytes")
    if length > MOST_READ_BYTES:
        raise UnreadableFileError(f"{name} has a header of {length} bytes, too large to read")
    return int(length)


def _raw(file: Path) -> tuple[dict[str, Any], int, int]:
    start, file_bytes = read_start(file, 8)
    length = header_bytes(start, file_bytes, file.name)
    data, _ = read_start(file, 8 + length)
    return parse(data, file.name), 8 + length, file_bytes


def _tensor(tensor: str, entry: object, data_at: int, name: str) -> TensorHeader:
    where = f"{name}: {_short(tensor)}"
    if not isinstance(entry, dict):
        raise BrokenHeaderError(f"{where} is not an object")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in BITS:
        raise BrokenHeaderError(f"{where} has the unknown type {_short(str(dtype))}")
    counts, places = _counts(shape, _MOST_DIMENSIONS), _counts(offsets, 2)
    if counts is None:
        raise BrokenHeaderError(f"{where} has an invalid shape")
    if places is None or len(places) != 2 or places[0] > places[1]:
        raise BrokenHeaderError(f"{where} has invalid offsets")
    found = TensorHeader(dtype, counts, data_at + places[0], data_at + places[1])
    if found.elements * BITS[dtype] != (found.end - found.start) * 8:
        raise BrokenHeaderError(
            f"{where} has {found.end - found.start} bytes, which does not match its shape and type"
        )
    return found


def _counts(value: Any, most: int) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > most:
        return None
    right = all(type(number) is int and 0 <= number < MOST_BYTES for number in value)
    return tuple(value) if right else None


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


INDEX = "model.safetensors.index.json"
_MOST_FILES = 512
"""Maximum number of weight files whose headers are read if there is no index."""
_MOST_MISSING = 100

# A multi-token-prediction layer is called `mtp.…`, `model.mtp_layers.0.…`, `mtp_block.0.…` or
# `language_model.mtp.…`: mimo_mtp.py, mimo_v2_nextn.py, qwen3_5_mtp.py, nemotron_h_mtp.py,
# deepseek_v4_nextn.py, hunyuan_v4_nextn.py, longcat_flash_nextn.py, iquest_q1_mtp.py,
# ernie4_eagle.py in srt/models of 0.5.23.
_NAMED = lazy(r"(?:^|\.)(?:mtp|nextn)(?:_[a-z_]+)?\.")
# Or it is the layer after the last one, `model.layers.61.…` for the 61 layers of DeepSeek-V3:
# deepseek_weight_loader.py, glm4_moe.py, glm5_next_nextn.py, step3p5_mtp.py, hunyuan_v3_nextn.py.
# The prefix excludes a deep vision tower.
_LAYER = lazy(r"(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.([0-9]+)\.(.*)")
# Only such a layer has these, with any layer number in a separate copy (`model.layers.0.…`).
_OWN = ("eh_proj.", "enorm.", "hnorm.", "shared_head.norm.")
_MARKS = ("mtp", "nextn", *_OWN)
# Copies of the target's weights in such a layer, skipped by the engine.
_SHARED = ("embed_tokens.", "shared_head.head.")


class CheckpointWeights(Struct, frozen=True):
    """Names of the tensors, total bytes, and the missing files that the index names.

    `names` is None if no file lists them (pickled weights, or no weights).
    """

    names: frozenset[str] | None = None
    total_bytes: int | None = None
    missing_files: tuple[str, ...] = ()

    def has_mtp(self, hidden_layers: int | None) -> bool | None:
        """True if there are weights of multi-token-prediction layers.

        None if unknown: no file lists the names, or no name marks such a layer and `hidden_layers`
        is None.
        """
        if self.names is None:
            return None
        marks = (*_MARKS, f"layers.{hidden_layers}.")
        if any(_is_mtp(name, hidden_layers) for name in self._with(*marks)):
            return True
        return None if hidden_layers is None else False

    def has_token_map(self) -> bool | None:
        """True if there is a map between vocabularies (EAGLE-3's `d2t`); None if unknown."""
        if self.names is None:
            return None
        return any(name.rpartition(".")[2] == "d2t" for name in self._with("d2t"))

    def _with(self, *marks: str) -> Iterator[str]:
        """Yield the names that contain any of `marks`. Fast even with 10^5 names."""
        names = self.names or frozenset()
        together = "\n".join(names)
        found = [mark for mark in marks if mark in together]
        if found:
            yield from (name for name in names if any(mark in name for mark in found))


def read_weights(directory: Path) -> CheckpointWeights:
    """Return a directory's tensor names and bytes, from the index or else the file headers."""
    files = weight_files(directory)
    if is_file(directory / INDEX):
        try:
            return _from_index(directory / INDEX, files)
        except UnreadableFileError:
            return CheckpointWeights(total_bytes=_total(files))
    if not files or len(files) > _MOST_FILES:
        return CheckpointWeights(total_bytes=_total(files))
    names: set[str] = set()
    for file in files:
        try:
            names |= read_names(file).keys()
        except UnreadableFileError:
            return CheckpointWeights(total_bytes=_total(files))
    return CheckpointWeights(frozenset(names), _total(files))


def _is_mtp(name: str, hidden_layers: int | None) -> bool:
    if _NAMED.search(name):
        return True
    layer = _LAYER.match(name)
    if layer is None:
        return False
    if layer[2].startswith(_OWN):
        return True
    return layer[1] == str(hidden_layers) and not layer[2].startswith(_SHARED)


def weight_files(directory: Path) -> list[Path]:
    """Return the safetensors files in a directory, sorted by name."""
    found = reads.below(directory, ".safetensors") if is_directory(directory) else []
    return [file for file in found if is_file(file)]  # skip broken links of a cache


def loaded_files(directory: Path) -> list[Path]:
    """Return the files that the engine loads: those in the index, else all safetensors files.

    See `filter_duplicate_safetensors_files` in srt/model_loader/weight_utils.py.
    """
    files = weight_files(directory)
    try:
        index = read_object(directory / INDEX, MAX_INDEX_BYTES)
    except UnreadableFileError:
        return files
    named = {file for file in mapping(index.get("weight_map")).values() if isinstance(file, str)}
    return [file for file in files if file.name in named]


def _total(files: Collection[Path]) -> int | None:
    try:
        return sum(map(reads.size, files)) or None
    except OSError:
        return None


def _from_index(index: Path, files: Collection[Path]) -> CheckpointWeights:
    found = read_object(index, MAX_INDEX_BYTES)
    where = mapping(found.get("weight_map"))
    named = {file for file in where.values() if isinstance(file, str)}
    total = size(mapping(found.get("metadata")).get("total_size"), most=MOST_BYTES)
    # an index without any file is a fact sheet, not a broken download
    missing = sorted(named - {file.name for file in files}) if files else []
    return CheckpointWeights(
        frozenset(where) if where else None,
        total or (None if missing else _total(files)),
        tuple(missing[:_MOST_MISSING]),
    )


TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"


class Vocabulary(Struct, frozen=True):
    """Token count, including added tokens, and a digest, which is equal for equal mappings."""

    tokens: int
    digest: str


def read_vocabulary(directory: Path) -> Vocabulary | None:
    """Return the token count and digest of `get_vocab()`, read from files; None if unknown.

    The tokens are those in `tokenizer.json` (else `vocab.json`), plus those that this file and
    `tokenizer_config.json` add. If a special token gets its id only when the tokenizer is
    loaded, the vocabulary is unknown.
    """
    try:
        if is_file(directory / TOKENIZER_FILE):
            found = _of_tokenizer(read_object(directory / TOKENIZER_FILE, MAX_TOKENIZER_BYTES))
        else:
            found = read_object(directory / "vocab.json", MAX_TOKENIZER_BYTES)
            found |= _optional(directory / "added_tokens.json")
        config = _optional(directory / TOKENIZER_CONFIG)
        special = [
            *_special_tokens(config),
            *_special_tokens(_optional(directory / SPECIAL_TOKENS_FILE)),
        ]
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
    # escaped, sorted by token: a unique text for each mapping
    encoded = json.dumps(ids, sort_keys=True)
    digest = hashlib.sha256(encoded.encode("ascii")).hexdigest()[:32]
    return Vocabulary(len(ids), digest)


def _of_tokenizer(found: Mapping[str, Any]) -> dict[str, Any]:
    vocabulary = mapping(found.get("model")).get("vocab")
    if isinstance(vocabulary, list):  # Unigram: [token, score] pairs, the id is the position
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
    values = [value for key, value in config.items() if key.endswith("_token")]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        more = config.get(key)
        values += list(more.values()) if isinstance(more, dict) else []
        values += more if isinstance(more, list) else []
    for token in values:
        content = text(token) or text(mapping(token).get("content"))
        if content is not None:
            yield content


def _optional(path: Path) -> dict[str, Any]:
    return read_object(path, MAX_CONFIG_BYTES) if is_file(path) else {}
