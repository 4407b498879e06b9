"""The tensors of a checkpoint on the Hugging Face hub: its headers, by requests for ranges.

huggingface_hub has a reader of its own (`get_safetensors_metadata`), which keeps in memory whatever
a server sends in place of a range; here as much is read as was asked for (`HubClient`).
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from speclaunch.facts.hub_client import MAIN, HubClient, HubRefusedError, in_time
from speclaunch.facts.kept_tensors import KeptTensors
from speclaunch.facts.safetensors_header import (
    BrokenHeaderError,
    TensorHeader,
    checked,
    header_bytes,
    parse,
)
from speclaunch.facts.tensors import Headers
from speclaunch.facts.weights import INDEX
from speclaunch.patterns import lazy
from speclaunch.reads.safe_json import (
    MAX_INDEX_BYTES,
    UnreadableFileError,
    mapping,
    parse_object,
)

_SECONDS = 120.0
_FIRST_BYTES = 1 << 17
"""What is asked first of each file: the whole header of most."""
_MOST_FILES = 256
_SINGLE = "model.safetensors"
_FILE = lazy(r"(?:[\w.-]{1,200}/){0,4}[\w.-]{1,200}\.safetensors\Z", re.ASCII)


def fetch_tensors(name: str, revision: str = MAIN) -> KeptTensors:
    """The tensors of a model on the hub, in two minutes at most. Raises HubRefusedError."""
    return in_time(lambda deadline: _fetch(HubClient(name, revision, deadline)), _SECONDS)


def _fetch(hub: HubClient) -> KeptTensors:
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
    return KeptTensors(Headers(tensors, tuple(broken)))


def _files(hub: HubClient) -> list[str]:
    index = hub.file(INDEX, MAX_INDEX_BYTES)
    if index is None:
        return [_SINGLE]
    try:
        named = mapping(parse_object(index, INDEX).get("weight_map")).values()
    except UnreadableFileError as error:
        raise HubRefusedError(str(error)) from None
    files = sorted({one for one in named if isinstance(one, str)})
    if len(files) > _MOST_FILES:
        raise HubRefusedError(f"its index names {len(files)} files")
    for file in files:
        if not _FILE.match(file) or ".." in PurePosixPath(file).parts:
            raise HubRefusedError(f"its index names {file[:80]!r}: not a file of weights")
    return files


def fetch_header(hub: HubClient, file: str, whole: int | None) -> dict[str, TensorHeader]:
    """The header of a weight file of `whole` bytes (None: the hub does not say).

    Raises HubRefusedError, UnreadableFileError, BrokenHeaderError.
    """
    start = hub.start(file, _FIRST_BYTES)
    if start is None:
        raise HubRefusedError(f"it has no {file} on the hub")
    length = header_bytes(start[:8], whole if whole is not None else 1 << 50, file)
    if len(start) < 8 + length:
        start = hub.start(file, 8 + length) or b""
    if len(start) < 8 + length:
        raise BrokenHeaderError(f"{file} ends before its header of {length} bytes does")
    raw = parse(start[: 8 + length], file)
    if whole is None:  # a mirror that does not say it
        ends = (mapping(said).get("data_offsets") for said in raw.values())
        last = (one[1] for one in ends if isinstance(one, list) and len(one) == 2)
        whole = 8 + length + max((end for end in last if isinstance(end, int)), default=0)
    return checked(raw, 8 + length, whole, file)
