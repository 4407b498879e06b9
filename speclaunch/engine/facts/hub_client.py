"""Client for small files on the Hugging Face hub or a mirror, never for weights.

huggingface_hub provides the address, the token, the proxies and certificates; its session sends the
requests. Its downloaders and its HfApi limit neither the size nor the time of a response. Therefore
this client reads responses itself, within limits. It works with huggingface_hub 0.30 (requests,
with transformers 4), 1 (httpx) and 2 (httpx2), because an engine's environment pins one of them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from msgspec import Struct

from speclaunch import __version__
from speclaunch.core import (
    MOST_BYTES,
    LateError,
    UnreadableFileError,
    collect,
    lazy,
    parse_object,
    size,
)

T = TypeVar("T")

MAIN = "main"
TRUE = frozenset({"1", "on", "yes", "true"})
"""Texts that the hub's library reads as true (huggingface_hub constants.py)."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_COMMIT = lazy(r"[0-9a-f]{40}\Z")
_MAX_API_BYTES = 16 << 20
_CHUNK = 1 << 16
_NO_REVISION, _NO_REPOSITORY = "RevisionNotFound", "RepoNotFound"


class HubRefusedError(Exception):
    """Error: the hub refused or failed a request. Has the reason and remedy for the user."""

    def __init__(self, why: str, help: str | None = None) -> None:  # noqa: A002
        super().__init__(why)
        self.help = help


class HubListing(Struct, frozen=True):
    """The hub's metadata of a model, in addition to its files."""

    commit: str | None = None
    gated: bool | None = None
    sizes: Mapping[str, int] = {}
    """File sizes in bytes by path."""


def offline() -> str | None:
    """Return the variable that forbids network access; None if none does.

    The library reads the second variable only if the first is empty (huggingface_hub constants.py).
    """
    for variable in OFFLINE:
        value = os.environ.get(variable)
        if value:
            return variable if value.lower() in TRUE else None
    return None


def in_time(run: Callable[[float], T], seconds: float) -> T:
    """Return the result of `run(deadline)`. Raises HubRefusedError if it is late, else whatever
    `run` raises.

    `run` gets a separate thread, because every library waits without limit for a header that
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
    """Client of one model at one revision. Each method raises HubRefusedError."""

    def __init__(self, name: str, revision: str, deadline: float) -> None:
        """Raise HubRefusedError if network access is forbidden or the name is not a hub name."""
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
        """The hub's address, without the credentials in it (`https://user:secret@mirror`)."""
        try:
            host = urlsplit(self._endpoint).netloc.rpartition("@")[2]
        except (AttributeError, ValueError):
            host = ""
        return host or "the hub"

    def file(self, path: str, most: int) -> bytes | None:
        """Return a file; None if the model lacks it or it exceeds `most` bytes."""
        return self._read(path, most, {}, cut=False)

    def start(self, path: str, length: int) -> bytes | None:
        """Return the first bytes of a file, by a range request or by a partial read."""
        range_header = {"range": f"bytes=0-{length - 1}"}
        return self._read(path, length, range_header, cut=True)

    def listing(self) -> HubListing:
        """Return the commit, gating and file sizes; empty if a mirror does not list them."""
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

    def _read(self, path: str, most: int, headers: Mapping[str, str], *, cut: bool) -> bytes | None:
        return self._get(self._url(path), most, headers, cut=cut)

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
            for answer in (*response.history, response):  # redirects have the commit, storage not
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
        """Open a response for streaming, with httpx, httpx2 or (huggingface_hub up to 0.36)
        requests."""
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
        """Convert errors to speclaunch's messages, which never contain an address or a token."""
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
        """Record the commit of a response. Raises HubRefusedError if it differs from an earlier
        commit."""
        if not isinstance(commit, str) or not _COMMIT.match(commit):
            return
        if self.commit not in (None, commit):
            raise HubRefusedError(
                f"{self.where} returned revision {commit[:12]}, not {self.commit:.12}"
            )
        self.commit = commit

    def _refused(self, status: int, code: str) -> HubRefusedError:
        """Return the error for a refused request. Without a token, a private model looks
        missing."""
        token = "" if "authorization" in self._headers else "set HF_TOKEN"
        if code == "GatedRepo":
            return HubRefusedError(
                "it is gated on the hub",
                ", and ".join(filter(None, ["accept its license there", token])),
            )
        if code == _NO_REVISION:
            return HubRefusedError("the hub does not have this revision")
        if code == _NO_REPOSITORY or status in (401, 403, 404):
            detail = "" if code else f" (HTTP {status})"
            return HubRefusedError(
                f"it is not on the hub, or private{detail}",
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
