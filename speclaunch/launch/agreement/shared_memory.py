"""What served before, for all ranks: where a requeued job or a new group begins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from speclaunch.launch.agreement.records import Decision
from speclaunch.launch.agreement.store import RecordError, Store, StoreError, make_directory
from speclaunch.reads.safe_json import is_shallow

_VERSION = 1
_LENGTH = 16384
"""Bytes of every file: it is written over the one before."""
_DEEPEST = 50


def memory_key(keys: Mapping[str, str]) -> str:
    """For what is launched, by part (`last_good.key`)."""
    return hashlib.sha256(json.dumps(dict(keys), sort_keys=True).encode()).hexdigest()[:32]


class SharedMemory:
    """A directory with one file for each thing launched.

    It may fail: then the ladder is walked again. A file that is written while it is read is not
    valid, and as good as absent.
    """

    def __init__(self, directory: Path, open_store: Callable[[Path, str], Store]) -> None:
        self._directory, self._open = directory, open_store

    def recall(self, key: str | None) -> Mapping[str, Mapping[str, Any]] | None:
        """The changes of each part; None where nothing is known."""
        if key is None:
            return None
        try:
            data = self._store.read(f"{key}.json")
            said = json.loads(data) if data else None
        except (StoreError, RecordError, ValueError, RecursionError):
            return None
        if not isinstance(said, dict) or said.get("version") != _VERSION:
            return None
        if not is_shallow(said, _DEEPEST):
            return None
        parts = said.get("parts")
        if not isinstance(parts, dict):
            return None
        return parts if all(isinstance(one, dict) for one in parts.values()) else None

    def remember(self, key: str | None, decision: Decision) -> None:
        """These settings served."""
        self._write(key, {name: dict(part.changes) for name, part in decision.parts.items()})

    def forget(self, key: str | None, decision: Decision) -> None:
        """These settings ran out of memory after all."""
        failed = {name: dict(part.changes) for name, part in decision.parts.items()}
        if key is not None and self.recall(key) == failed:
            self._write(key, {name: {} for name in failed})

    def _write(self, key: str | None, parts: Mapping[str, Any]) -> None:
        text = json.dumps({"version": _VERSION, "parts": parts}, sort_keys=True, default=str)
        if key is None or len(text) >= _LENGTH:
            return
        try:
            make_directory(self._directory)
            self._store.overwrite(f"{key}.json", text.ljust(_LENGTH - 1).encode() + b"\n")
        except StoreError:
            return

    @property
    def _store(self) -> Store:
        return self._open(self._directory, "memory")
