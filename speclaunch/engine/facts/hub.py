"""Downloads a checkpoint's facts from the Hugging Face hub, never its weights.

It reads only the tensor headers, with range requests. huggingface_hub's own reader
(`get_safetensors_metadata`) holds the complete response in memory if a server ignores the range.
This module reads only the requested bytes (`HubClient`).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from speclaunch.core import (
    MAX_CONFIG_BYTES,
    MAX_INDEX_BYTES,
    MOST_BYTES,
    UnreadableFileError,
    lazy,
    mapping,
    parse_object,
    read_object,
    size,
)
from speclaunch.engine.facts.checkpoint import Checkpoint, FactSource, Origin
from speclaunch.engine.facts.checkpoint_file import CheckpointFile
from speclaunch.engine.facts.facts import UnknownFact, checkpoint_fact
from speclaunch.engine.facts.hub_client import MAIN, HubClient, HubListing, HubRefusedError, in_time
from speclaunch.engine.facts.read_checkpoint import QUANTIZATION_FILE, read_checkpoint
from speclaunch.engine.facts.record_checkpoint import MOST_HEADERS, recorded
from speclaunch.engine.facts.safetensors_header import (
    BrokenHeaderError,
    TensorHeader,
    checked,
    header_bytes,
    parse,
)
from speclaunch.engine.facts.tensors import Headers, StoredTensors
from speclaunch.engine.facts.weights import (
    INDEX,
    SPECIAL_TOKENS_FILE,
    TOKENIZER_CONFIG,
    TOKENIZER_FILE,
)

_TENSOR_SECONDS = 120.0
_FIRST_BYTES = 1 << 17
"""Bytes of the first request for each file. Most headers are shorter."""
_MOST_FILES = 256
_FILE = lazy(r"(?:[\w.-]{1,200}/){0,4}[\w.-]{1,200}\.safetensors\Z", re.ASCII)


def fetch_tensors(name: str, revision: str = MAIN) -> StoredTensors:
    """Return the tensors of a model on the hub. Takes at most two minutes. Raises
    HubRefusedError."""
    return in_time(
        lambda deadline: _all_tensors(HubClient(name, revision, deadline)), _TENSOR_SECONDS
    )


def _all_tensors(hub: HubClient) -> StoredTensors:
    sizes = hub.listing().sizes
    tensors: dict[str, TensorHeader] = {}
    broken = []
    for file in _files(hub):
        try:
            tensors |= fetch_header(hub, file, sizes.get(file))
        except BrokenHeaderError as error:
            broken.append(str(error))
        except UnreadableFileError as error:
            raise HubRefusedError(str(error)) from None
    return StoredTensors(Headers(tensors, tuple(broken)))


def _files(hub: HubClient) -> list[str]:
    index = hub.file(INDEX, MAX_INDEX_BYTES)
    if index is None:
        return [_SINGLE]
    try:
        named = mapping(parse_object(index, INDEX).get("weight_map")).values()
    except UnreadableFileError as error:
        raise HubRefusedError(str(error)) from None
    files = sorted({file for file in named if isinstance(file, str)})
    if len(files) > _MOST_FILES:
        raise HubRefusedError(f"its index names {len(files)} files")
    for file in files:
        if not _FILE.match(file) or ".." in PurePosixPath(file).parts:
            raise HubRefusedError(f"its index names {file[:80]!r}: not a weight file")
    return files


def fetch_header(hub: HubClient, file: str, file_bytes: int | None) -> dict[str, TensorHeader]:
    """Return the header of a weight file. `file_bytes`: its size; None if the hub does not report
    it.

    Raises HubRefusedError, UnreadableFileError, BrokenHeaderError.
    """
    start = hub.start(file, _FIRST_BYTES)
    if start is None:
        raise HubRefusedError(f"it has no {file} on the hub")
    length = header_bytes(start[:8], file_bytes if file_bytes is not None else 1 << 50, file)
    if len(start) < 8 + length:
        start = hub.start(file, 8 + length) or b""
    if len(start) < 8 + length:
        raise BrokenHeaderError(f"{file} is shorter than its header of {length} bytes")
    raw = parse(start[: 8 + length], file)
    if file_bytes is None:  # a mirror that does not report it
        ends = (mapping(entry).get("data_offsets") for entry in raw.values())
        last = (offsets[1] for offsets in ends if isinstance(offsets, list) and len(offsets) == 2)
        file_bytes = 8 + length + max((end for end in last if isinstance(end, int)), default=0)
    return checked(raw, 8 + length, file_bytes, file)


_MOST_SECONDS = 60.0
"""Limit on all files of a checkpoint together."""
_MOST_SECONDS_OF_PULL = 300.0
_MAX_TOKENIZER_BYTES = 32 << 20
_FILES = {QUANTIZATION_FILE: MAX_CONFIG_BYTES, INDEX: MAX_INDEX_BYTES}
_TOKENIZER_FILES = {
    TOKENIZER_FILE: _MAX_TOKENIZER_BYTES,
    TOKENIZER_CONFIG: MAX_CONFIG_BYTES,
    SPECIAL_TOKENS_FILE: MAX_CONFIG_BYTES,
}
_OLDER_TOKENIZER = {"vocab.json": _MAX_TOKENIZER_BYTES, "added_tokens.json": MAX_CONFIG_BYTES}
_SINGLE = "model.safetensors"


def fetch_checkpoint(
    name: str, *, tokenizer: bool = False, revision: str = MAIN
) -> Checkpoint | UnknownFact:
    """Return the facts about a model on the hub that a check needs. Downloads three to six small
    files.

    HF_ENDPOINT, HF_TOKEN and its file, HF_HUB_OFFLINE and proxies work as in huggingface_hub.
    """

    def fetch(deadline: float) -> Checkpoint | UnknownFact:
        hub = HubClient(name, revision, deadline)
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary)
            _fetch(hub, directory, _FILES | (_TOKENIZER_FILES if tokenizer else {}))
            origin = Origin(FactSource.HUB, hub.where, revision=hub.commit)
            found = read_checkpoint(name, directory, tokenizer=tokenizer, origin=origin)
        if isinstance(found, UnknownFact):
            return found
        return replace(
            found, path=None, has_dspark_folder=None, tensors=None
        )  # the directory no longer exists

    try:
        return in_time(fetch, _MOST_SECONDS)
    except HubRefusedError as error:
        return UnknownFact(checkpoint_fact(name), str(error), error.help)


def fetch_facts(name: str, *, revision: str = MAIN, today: date) -> CheckpointFile:
    """Return all facts about a model on the hub that a facts file stores. Raises HubRefusedError.

    - its config
    - the total and the names in its index, or else the headers of a few weight files (range
      requests)
    - its tokenizer's vocabulary, its commit and sizes, and whether it is gated
    """

    def fetch(deadline: float) -> CheckpointFile:
        hub = HubClient(name, revision, deadline)
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary)
            _fetch(hub, directory, _FILES | _TOKENIZER_FILES)
            if not (directory / TOKENIZER_FILE).exists():
                _fetch_into(hub, directory, _OLDER_TOKENIZER)
            listing = hub.listing()
            tensors: Mapping[str, TensorHeader] = {}
            if not (directory / INDEX).exists():
                tensors = _fetch_tensors(hub, listing)
            found = recorded(
                directory,
                name,
                source=hub_source(revision),
                read=today.isoformat(),
                revision=hub.commit,
                tensors=tensors,
            )
            total, exact, source = _total(directory, listing)
        return replace(
            found,
            gated=listing.gated,
            weight_bytes=total,
            weights_exact=exact,
            weights_source=source,
        )

    try:
        return in_time(fetch, _MOST_SECONDS_OF_PULL)
    except UnreadableFileError as error:
        raise HubRefusedError(str(error)) from None


def hub_source(revision: str) -> str:
    """Return the `source` of facts from the hub: `hub`, or `hub@v1.0` for a revision."""
    return "hub" if revision == MAIN else f"hub@{revision}"


def revision_of(source: str) -> str | None:
    """Return the revision that was requested from the hub; None for facts from other sources."""
    kind, at, revision = source.partition("@")
    return None if kind != "hub" else revision if at else MAIN


def _fetch(hub: HubClient, directory: Path, files: Mapping[str, int]) -> None:
    """Download the config, which is required, and each of the other files that exists."""
    config = hub.file("config.json", MAX_CONFIG_BYTES)
    if config is None:
        raise HubRefusedError(
            f"its config.json on the hub is missing or larger than {MAX_CONFIG_BYTES} bytes"
        )
    (directory / "config.json").write_bytes(config)
    _fetch_into(hub, directory, files)


def _fetch_into(hub: HubClient, directory: Path, files: Mapping[str, int]) -> None:
    for file, most in files.items():
        data = hub.file(file, most)
        if data is not None:
            (directory / file).write_bytes(data)


def _fetch_tensors(hub: HubClient, listing: HubListing) -> dict[str, TensorHeader]:
    """Return the tensors of a model without an index, from the headers of its weight files."""
    files = _weight_files(listing) or ([] if listing.sizes else [_SINGLE])
    found: dict[str, TensorHeader] = {}
    for file in files if len(files) <= MOST_HEADERS else ():
        if not listing.sizes and hub.start(file, 8) is None:
            return {}
        found |= fetch_header(hub, file, listing.sizes.get(file))
    return found


def _total(directory: Path, listing: HubListing) -> tuple[int | None, bool, str | None]:
    """Return the bytes of the weights, whether they are exact, and their source.

    Uses the index's total if it is consistent with the file sizes.
    """
    index = directory / INDEX
    total, named = None, set(_weight_files(listing))
    if index.exists():
        found = read_object(index, MAX_INDEX_BYTES)
        total = size(mapping(found.get("metadata")).get("total_size"), most=MOST_BYTES)
        named = {
            file for file in mapping(found.get("weight_map")).values() if isinstance(file, str)
        }
    complete = bool(named) and named <= listing.sizes.keys()
    files = sum(listing.sizes[file] for file in named) if complete else None
    if total is not None and (files is None or total <= files <= total * 1.02 + MAX_INDEX_BYTES):
        return total, True, "total_size of the index"
    if not files or files > MOST_BYTES:
        return None, False, None
    return files, total is None, "size of the files" + ("; the index differs" if total else "")


def _weight_files(listing: HubListing) -> list[str]:
    return sorted(f for f in listing.sizes if f.endswith(".safetensors") and "/" not in f)
