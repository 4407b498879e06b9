"""Last known good settings of a request, for the same engine and hardware.

Each request has one file, named by its digest, with the settings that served, newest first. Files
are read and written under a lock, and replaced atomically. The least recently used files are
dropped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert, to_builtins

from speclaunch.core import locked, make_private, read_json, speclaunch_home, write_json

if TYPE_CHECKING:
    from speclaunch.deployments import Deployment
    from speclaunch.engine import Hardware

_VERSION = 2
"""Version of the format. Version 1 had one entry per file, at the top of the document, and the
recipe's name in the digest.
"""
_ENTRIES = 4
_FILES = 256
_NOT_MEMORY = frozenset(
    {"host", "port", "served_model_name", "nccl_port", "node_rank", "dist_init_addr"}
)
"""Server arguments that do not affect memory use."""
_NOT_MEMORY_VARIABLES = frozenset(
    {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "SGLANG_HOST_IP", "HOST_IP"}
)
"""Variables that name the network of one host."""


class LastGood(Struct, frozen=True):
    """Recipe changes with which the engine last served, with their time and launch."""

    changes: Mapping[str, Any]
    since: float
    run: str
    tokens: int | None = None


def key(deployment: Deployment, version: str, hardware: Hardware | None) -> str:
    """Return the key of known good settings, from arguments and variables as composed, engine
    version and hardware.

    A different argument or variable gives a different key, so a changed recipe starts afresh. The
    spelling of an argument, the recipe's name, secrets and addresses do not count.
    """
    from speclaunch.core import is_secret_variable  # noqa: PLC0415
    from speclaunch.engine import (  # noqa: PLC0415 - who remembers has the key
        canonical,
        is_secret_argument,
    )

    args = {
        canonical(name): value
        for name, value in deployment.args.items()
        if value is not None and canonical(name) not in _NOT_MEMORY and not is_secret_argument(name)
    }
    env = {
        name: value
        for name, value in deployment.engine.env.items()
        if not is_secret_variable(name) and name not in _NOT_MEMORY_VARIABLES
    }
    machine: list[Any] = []
    if hardware is not None:
        gpus = [(gpu.name, gpu.memory_bytes) for gpu in hardware.gpus]
        machine = [hardware.name, hardware.count, hardware.memory_mib, gpus]
    text = json.dumps([args, env, version, machine], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def recall(name: str) -> LastGood | None:
    """Return the last settings that served under a key; None if there are none."""
    entries = _read(name)
    return entries[0] if entries else None


def remember(name: str, changes: Mapping[str, Any], run: str, tokens: int | None) -> None:
    """Store the settings that served. Without changes, store nothing: the recipe itself served.

    An unwritable disk does not stop the launch; the next launch walks the ladder again.
    """
    if not changes:
        forget(name)
        return
    with _locked():
        others = [entry for entry in _read(name) if entry.changes != changes]
        _write(name, [LastGood(dict(changes), time.time(), run, tokens), *others][:_ENTRIES])
        _drop_oldest()


def forget(name: str, changes: Mapping[str, Any] | None = None) -> None:
    """Drop changes that failed after all; without `changes`, all settings of the key."""
    with _locked():
        left = [] if changes is None else [e for e in _read(name) if e.changes != changes]
        if left:
            _write(name, left)
        else:
            with contextlib.suppress(OSError):
                _path(name).unlink()


def _read(name: str) -> list[LastGood]:
    document = read_json(_path(name)) or {}
    version, entries = document.get("version"), document.get("entries")
    if version != _VERSION or not isinstance(entries, list):
        entries = [document] if version == 1 else []
    found = []
    for entry in entries:
        with contextlib.suppress(TypeError, ValueError):
            found.append(convert({"run": "", **entry}, LastGood))
    return [entry for entry in found if entry.changes]


def _write(name: str, entries: list[LastGood]) -> None:
    with contextlib.suppress(OSError):
        make_private(_path(name).parent)
        write_json(_path(name), {"version": _VERSION, "entries": to_builtins(entries)})


def _drop_oldest() -> None:
    with contextlib.suppress(OSError):
        files = sorted(_directory().glob("*.json"), key=lambda file: file.stat().st_mtime)
        for file in files[: max(0, len(files) - _FILES)]:
            file.unlink()


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Hold a lock if possible, because two launches may end at the same time."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(locked(_directory().with_suffix(".lock")))
        yield


def _directory() -> Path:
    return speclaunch_home() / "state" / "last-good"


def _path(name: str) -> Path:
    return _directory() / f"{name}.json"
