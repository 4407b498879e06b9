"""Fetches the facts of a checkpoint from the Hugging Face hub: never its weights."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

from speclaunch.facts import quantization, tokenizer, weights
from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.checkpoint_file import CheckpointFile
from speclaunch.facts.facts import UnknownFact, checkpoint_fact
from speclaunch.facts.hub_client import MAIN, HubClient, HubListing, HubRefusedError, in_time
from speclaunch.facts.hub_tensors import fetch_header
from speclaunch.facts.origin import Origin, Provenance
from speclaunch.facts.read_checkpoint import read_checkpoint
from speclaunch.facts.record_checkpoint import MOST_HEADERS, recorded
from speclaunch.facts.safetensors_header import TensorHeader
from speclaunch.reads.safe_json import (
    MAX_CONFIG_BYTES,
    MAX_INDEX_BYTES,
    MOST_BYTES,
    UnreadableFileError,
    mapping,
    read_object,
    size,
)

_MOST_SECONDS = 60.0
"""For all files of a checkpoint, however slowly they come."""
_MOST_SECONDS_OF_PULL = 300.0
_MAX_TOKENIZER_BYTES = 32 << 20
_FILES = {quantization.FILE: MAX_CONFIG_BYTES, weights.INDEX: MAX_INDEX_BYTES}
_TOKENIZER_FILES = {
    tokenizer.FILE: _MAX_TOKENIZER_BYTES,
    tokenizer.CONFIG: MAX_CONFIG_BYTES,
    tokenizer.SPECIAL: MAX_CONFIG_BYTES,
}
_OLDER_TOKENIZER = {"vocab.json": _MAX_TOKENIZER_BYTES, "added_tokens.json": MAX_CONFIG_BYTES}
_SINGLE = "model.safetensors"


def fetch_checkpoint(
    name: str, *, tokenizer: bool = False, revision: str = MAIN
) -> Checkpoint | UnknownFact:
    """The facts of a model on the hub, as a check needs them: three small files, or six.

    HF_ENDPOINT, HF_TOKEN and its file, HF_HUB_OFFLINE, proxies count as for huggingface_hub.
    """

    def ask(deadline: float) -> Checkpoint | UnknownFact:
        hub = HubClient(name, revision, deadline)
        with tempfile.TemporaryDirectory() as told:
            directory = Path(told)
            _fetch(hub, directory, _FILES | (_TOKENIZER_FILES if tokenizer else {}))
            origin = Origin(Provenance.HUB, hub.where, revision=hub.commit)
            found = read_checkpoint(name, directory, tokenizer=tokenizer, origin=origin)
        if isinstance(found, UnknownFact):
            return found
        return replace(
            found, path=None, has_dspark_folder=None, tensors=None
        )  # of a directory that is gone

    try:
        return in_time(ask, _MOST_SECONDS)
    except HubRefusedError as error:
        return UnknownFact(checkpoint_fact(name), str(error), error.help)


def fetch_facts(name: str, *, revision: str = MAIN, today: date) -> CheckpointFile:
    """Everything that is kept of a model on the hub. Raises HubRefusedError.

    Its config, the totals and names of its index (else the headers of a few weight files, by range
    requests), its tokenizer's vocabulary, its commit, its sizes, whether it is gated.
    """

    def ask(deadline: float) -> CheckpointFile:
        hub = HubClient(name, revision, deadline)
        with tempfile.TemporaryDirectory() as told:
            directory = Path(told)
            _fetch(hub, directory, _FILES | _TOKENIZER_FILES)
            if not (directory / tokenizer.FILE).exists():
                _fetch_into(hub, directory, _OLDER_TOKENIZER)
            listing = hub.listing()
            tensors: Mapping[str, TensorHeader] = {}
            if not (directory / weights.INDEX).exists():
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
        return in_time(ask, _MOST_SECONDS_OF_PULL)
    except UnreadableFileError as error:
        raise HubRefusedError(str(error)) from None


def hub_source(revision: str) -> str:
    """How a file says that its facts are the hub's: `hub`, `hub@v1.0` of another revision."""
    return "hub" if revision == MAIN else f"hub@{revision}"


def revision_of(source: str) -> str | None:
    """The revision that was asked of the hub; None for facts that are not from there."""
    kind, at, revision = source.partition("@")
    return None if kind != "hub" else revision if at else MAIN


def _fetch(hub: HubClient, directory: Path, files: Mapping[str, int]) -> None:
    """The config, which must be there, and those of the other files that are."""
    config = hub.file("config.json", MAX_CONFIG_BYTES)
    if config is None:
        raise HubRefusedError(
            f"it has no config.json on the hub, or one of more than {MAX_CONFIG_BYTES} bytes"
        )
    (directory / "config.json").write_bytes(config)
    _fetch_into(hub, directory, files)


def _fetch_into(hub: HubClient, directory: Path, files: Mapping[str, int]) -> None:
    for file, most in files.items():
        data = hub.file(file, most)
        if data is not None:
            (directory / file).write_bytes(data)


def _fetch_tensors(hub: HubClient, listing: HubListing) -> dict[str, TensorHeader]:
    """The tensors of a model without an index, by the headers of its few weight files."""
    files = _weight_files(listing) or ([] if listing.sizes else [_SINGLE])
    found: dict[str, TensorHeader] = {}
    for file in files if len(files) <= MOST_HEADERS else ():
        if not listing.sizes and hub.start(file, 8) is None:
            return {}
        found |= fetch_header(hub, file, listing.sizes.get(file))
    return found


def _total(directory: Path, listing: HubListing) -> tuple[int | None, bool, str | None]:
    """Bytes of the weights, whether exact, and by what.

    The index's total counts as long as the sizes of its files can be true beside it.
    """
    index = directory / weights.INDEX
    said, named = None, set(_weight_files(listing))
    if index.exists():
        found = read_object(index, MAX_INDEX_BYTES)
        said = size(mapping(found.get("metadata")).get("total_size"), most=MOST_BYTES)
        named = {
            file for file in mapping(found.get("weight_map")).values() if isinstance(file, str)
        }
    whole = bool(named) and named <= listing.sizes.keys()
    files = sum(listing.sizes[file] for file in named) if whole else None
    if said is not None and (files is None or said <= files <= said * 1.02 + MAX_INDEX_BYTES):
        return said, True, "total_size of the index"
    if not files or files > MOST_BYTES:
        return None, False, None
    return files, said is None, "size of the files" + ("; the index differs" if said else "")


def _weight_files(listing: HubListing) -> list[str]:
    return sorted(f for f in listing.sizes if f.endswith(".safetensors") and "/" not in f)
