"""Downloads a checkpoint's facts from the Hugging Face hub, never its weights.

It reads only the headers of weight files, with range requests (`HubClient`). huggingface_hub's own
reader (`get_safetensors_metadata`) holds the complete response in memory if a server ignores the
range.

huggingface_hub provides the address, the token, the proxies and certificates; its session sends the
requests. Its downloaders and HfApi limit neither the size nor the time of a response. This client
limits both. It works with huggingface_hub 0.30 (requests, with transformers 4), 1 (httpx) and 2
(httpx2), because different engines pin different versions.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from http.client import HTTPException
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from speclaunch import __version__
from speclaunch.core import (
    MAX_CONFIG_BYTES,
    MAX_INDEX_BYTES,
    MOST_BYTES,
    LateError,
    UnreadableFileError,
    collect,
    lazy,
    mapping,
    parse_object,
    read_object,
    size,
)
from speclaunch.engine.facts.checkpoint_file import CheckpointFile
from speclaunch.engine.facts.facts import (
    Checkpoint,
    FactSource,
    Origin,
    UnknownFact,
    checkpoint_fact,
)
from speclaunch.engine.facts.read_checkpoint import QUANTIZATION_FILE, read_checkpoint
from speclaunch.engine.facts.record_checkpoint import MOST_HEADERS, recorded
from speclaunch.engine.facts.tensors import Headers, StoredTensors
from speclaunch.engine.facts.weight_files import (
    INDEX,
    SPECIAL_TOKENS_FILE,
    TOKENIZER_CONFIG,
    TOKENIZER_FILE,
    BrokenHeaderError,
    TensorHeader,
    checked,
    header_bytes,
    parse,
)

T = TypeVar("T")

MAIN = "main"
TRUE = frozenset({"1", "on", "yes", "true"})
"""Values of a variable that mean true in huggingface_hub (constants.py)."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_COMMIT = lazy(r"[0-9a-f]{40}\Z")
_MAX_API_BYTES = 16 << 20
_CHUNK = 1 << 16
_NO_REVISION, _NO_REPOSITORY = "RevisionNotFound", "RepoNotFound"
REFUSALS = ("it is gated on the hub", "it is not on the hub")
"""Prefixes of messages for refusals that a retry cannot resolve."""


class HubRefusedError(Exception):
    """Error: a request to the hub was refused or failed. Contains the reason and the remedy."""

    def __init__(self, why: str, help: str | None = None) -> None:  # noqa: A002
        super().__init__(why)
        self.help = help


class HubListing(Struct, frozen=True):
    """Metadata of a model on the hub. Fields that are None or empty were not reported."""

    commit: str | None = None
    gated: bool | None = None
    sizes: Mapping[str, int] = {}
    """File sizes in bytes by path."""


def offline() -> str | None:
    """Return the variable that forbids network access; None if none does.

    TRANSFORMERS_OFFLINE is read only if HF_HUB_OFFLINE is empty (huggingface_hub constants.py).
    """
    for variable in OFFLINE:
        value = os.environ.get(variable)
        if value:
            return variable if value.lower() in TRUE else None
    return None


def in_time(run: Callable[[float], T], seconds: float) -> T:
    """Return the result of `run(deadline)`. Raises HubRefusedError after `seconds`, else whatever
    `run` raises.

    `run` runs in a separate thread, because HTTP libraries wait without limit for a header that
    arrives byte by byte. An abandoned thread does not keep the process alive.
    """
    found: list[T] = []
    failed: list[Exception] = []
    deadline = time.monotonic() + seconds

    def work() -> None:
        try:
            found.append(run(deadline))
        except Exception as error:  # re-raised for the caller
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True, name="hub")
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not found:
        raise _late(seconds)
    return found[0]


class HubClient:
    """Client for one model at one revision. Every method may raise HubRefusedError."""

    def __init__(self, name: str, revision: str, deadline: float) -> None:
        """Create a client whose requests end by `deadline` (`time.monotonic`). Raises
        HubRefusedError if network access is forbidden or the name is not a hub name."""
        switch = offline()
        if switch is not None:
            raise HubRefusedError(f"{switch} is set: nothing is fetched", "unset it")
        self.name, self.revision, self._deadline = name, revision, deadline
        self.commit: str | None = revision if _COMMIT.match(revision) else None
        self._seconds = max(0.0, deadline - time.monotonic())
        with self._telling():
            import huggingface_hub as library  # noqa: PLC0415  0.3 s, and online only
            from huggingface_hub import constants  # noqa: PLC0415

            utils: Any = import_module("huggingface_hub.utils")

            # otherwise an extra request identifies the caller, and its result is cached
            constants.HF_HUB_DISABLE_TELEMETRY = True
            self._library: Any = library
            self._endpoint = (os.environ.get("HF_ENDPOINT") or str(constants.ENDPOINT)).rstrip("/")
            self._session: Any = utils.get_session()
            self._pause = min(float(constants.HF_HUB_DOWNLOAD_TIMEOUT), self._seconds)
            self._headers = utils.build_hf_headers(
                library_name="speclaunch", library_version=__version__
            )
            self._url("config.json")
        self._headers["accept-encoding"] = "identity"  # no compression: sizes are those on the wire

    @property
    def where(self) -> str:
        """The hub's host, without credentials: `mirror` for `https://user:secret@mirror`."""
        try:
            host = urlsplit(self._endpoint).netloc.rpartition("@")[2]
        except (AttributeError, ValueError):
            host = ""
        return host or "the hub"

    def file(self, path: str, most: int) -> bytes | None:
        """Return a file's content; None if the model lacks the file or it exceeds `most` bytes."""
        return self._get(self._url(path), most, {}, cut=False)

    def start(self, path: str, length: int) -> bytes | None:
        """Return at most the first `length` bytes of a file; None if it is missing."""
        range_header = {"range": f"bytes=0-{length - 1}"}
        return self._get(self._url(path), length, range_header, cut=True)

    def listing(self) -> HubListing:
        """Return the commit, gated state and file sizes; empty if a mirror does not list them."""
        address = f"{self._endpoint}/api/models/{self.name}/revision/"
        address += quote(self.commit or self.revision, safe="") + "?blobs=true"
        data = self._get(address, _MAX_API_BYTES, {}, cut=False)
        if data is None:
            return HubListing()
        try:
            page = parse_object(data, "the hub's model page")
        except UnreadableFileError as error:
            raise HubRefusedError(str(error)) from None
        gated = page.get("gated")
        self._at(page.get("sha"))
        return HubListing(
            self.commit,
            gated if isinstance(gated, bool) else True if isinstance(gated, str) else None,
            dict(_sizes(page.get("siblings"))),
        )

    def _url(self, path: str) -> str:
        found: str = self._library.hf_hub_url(
            self.name, path, revision=self.commit or self.revision, endpoint=self._endpoint
        )
        return found

    def _get(self, url: str, most: int, headers: Mapping[str, str], *, cut: bool) -> bytes | None:
        with self._telling(), self._opened(url, headers) as (response, chunks):
            status, code = response.status_code, str(response.headers.get("x-error-code", ""))
            if status == 404 and code not in (_NO_REPOSITORY, _NO_REVISION):
                return None
            if status != 200 and not (cut and status == 206):
                raise self._refused(status, code)
            for answer in (*response.history, response):  # the storage names no commit
                self._at(answer.headers.get("x-repo-commit"))
            if response.headers.get("content-encoding", "identity") != "identity":
                raise HubRefusedError(
                    f"{self.where} sent a compressed response, which was not requested"
                )
            declared = response.headers.get("content-length", "")
            if declared and not (declared.isascii() and declared.isdigit()):
                raise HubRefusedError(f"{self.where} sent an invalid length")
            length = int(declared[:20]) if declared else None
            if length is not None and length > most and not cut:
                return None
            data = self._collected(chunks, most)
            if cut:
                return data[:most]
            if length is not None and len(data) not in (length, most + 1):
                raise HubRefusedError(f"{self.where} sent {len(data)} of {length} bytes")
            return None if len(data) > most else data

    def _collected(self, chunks: Iterator[bytes], most: int) -> bytes:
        try:
            return collect(chunks, most, self._deadline)
        except LateError:
            raise _late(self._seconds) from None

    @contextmanager
    def _opened(
        self, url: str, headers: Mapping[str, str]
    ) -> Iterator[tuple[Any, Iterator[bytes]]]:
        """Yield a response and its chunks, from httpx or (huggingface_hub up to 0.36) requests."""
        if time.monotonic() > self._deadline:
            raise _late(self._seconds)
        sent = {**self._headers, **headers}
        if callable(getattr(self._session, "stream", None)):  # in requests, `stream` is a switch
            with self._session.stream(
                "GET", url, headers=sent, timeout=self._pause, follow_redirects=True
            ) as response:
                yield response, response.iter_raw()
        else:
            with self._session.get(url, headers=sent, timeout=self._pause, stream=True) as response:
                yield response, response.raw.stream(_CHUNK, decode_content=False)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Convert network errors to HubRefusedError without URLs or tokens."""
        try:
            yield
        except (HubRefusedError, UnreadableFileError):
            raise
        except Exception as error:
            if type(error).__name__ == "HFValidationError":
                raise HubRefusedError("its name is not a valid hub name") from None
            if not isinstance(error, _network_errors()):
                raise
            raise HubRefusedError(
                f"{self.where} cannot be reached: {type(error).__name__}"
            ) from None

    def _at(self, commit: object) -> None:
        """Record a response's commit. Raises HubRefusedError if it differs from an earlier one."""
        if not isinstance(commit, str) or not _COMMIT.match(commit):
            return
        if self.commit not in (None, commit):
            raise HubRefusedError(
                f"{self.where} returned revision {commit[:12]}, not {self.commit:.12}"
            )
        self.commit = commit

    def _refused(self, status: int, code: str) -> HubRefusedError:
        """Return the error for a status. Without a token, a private model looks missing."""
        token = "" if "authorization" in self._headers else "set HF_TOKEN"
        if code == "GatedRepo":
            return HubRefusedError(
                REFUSALS[0],
                ", and ".join(filter(None, ["accept its license there", token])),
            )
        if code == _NO_REVISION:
            return HubRefusedError("the hub does not have this revision")
        if code == _NO_REPOSITORY or status in (401, 403, 404):
            detail = "" if code else f" (HTTP {status})"
            return HubRefusedError(
                f"{REFUSALS[1]}, or it is private{detail}",
                ", or ".join(filter(None, ["check its name", token])),
            )
        if status == 429:
            detail = "the hub limits the number of requests (HTTP 429)"
            return HubRefusedError(detail, "set HF_TOKEN")
        return HubRefusedError(
            f"the hub returned a server error (HTTP {status})", "try again later"
        )


def _late(seconds: float) -> HubRefusedError:
    return HubRefusedError(f"the hub did not respond within {seconds:.0f} s")


def _sizes(siblings: object) -> Iterator[tuple[str, int]]:
    for sibling in siblings if isinstance(siblings, list) else ():
        if isinstance(sibling, dict) and isinstance(sibling.get("rfilename"), str):
            found = size(sibling.get("size"), least=0, most=MOST_BYTES)
            if found is not None:
                yield sibling["rfilename"], found


def _network_errors() -> tuple[type[BaseException], ...]:
    """Return the exception types that a request may raise. The requests library raises OSError; an
    invalid address causes ValueError."""
    found: list[type[BaseException]] = [OSError, ValueError, RuntimeError, HTTPException]
    for library in ("httpx2", "httpx"):
        module = sys.modules.get(library)
        found += [module.HTTPError, module.InvalidURL] if module is not None else []
    urllib3 = sys.modules.get("urllib3.exceptions")
    return (*found, urllib3.HTTPError) if urllib3 is not None else tuple(found)


_TENSOR_SECONDS = 120.0
_FIRST_BYTES = 1 << 17
"""Number of bytes that the first request for a weight file fetches. Most headers are shorter."""
_MOST_FILES = 256
_FILE = lazy(r"(?:[\w.-]{1,200}/){0,4}[\w.-]{1,200}\.safetensors\Z", re.ASCII)


def fetch_tensors(name: str, revision: str = MAIN) -> StoredTensors:
    """Return a hub model's tensor headers within two minutes. Raises HubRefusedError."""
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
        raise HubRefusedError(f"its index names {len(files)} files, more than {_MOST_FILES}")
    for file in files:
        if not _FILE.match(file) or ".." in PurePosixPath(file).parts:
            raise HubRefusedError(f"its index names {file[:80]!r}, which is not a weight file")
    return files


def fetch_header(hub: HubClient, file: str, file_bytes: int | None) -> dict[str, TensorHeader]:
    """Return the tensor headers in a weight file, by name. `file_bytes`: the file's size, if known.

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
"""Time limit in seconds for all files of a checkpoint together."""
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
    """Return the facts of a model on the hub, or why they are unknown. Downloads three to six small
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
    """Return the content of a facts file for a model on the hub. Raises HubRefusedError.

    Reads the config, the tokenizer, the commit and the gated state. The tensor names and the size
    come from the index, or else from the headers (range requests) and file sizes. `today`: the date
    to record.
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
    """Return the tensors of a model without an index; empty without files or with too many."""
    files = _weight_files(listing) or ([] if listing.sizes else [_SINGLE])
    found: dict[str, TensorHeader] = {}
    for file in files if len(files) <= MOST_HEADERS else ():
        if not listing.sizes and hub.start(file, 8) is None:
            return {}
        found |= fetch_header(hub, file, listing.sizes.get(file))
    return found


def _total(directory: Path, listing: HubListing) -> tuple[int | None, bool, str | None]:
    """Return the bytes of the weights (None if unknown), True if they are exact, and their source.

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
