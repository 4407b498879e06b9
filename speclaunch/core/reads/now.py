"""Checks whether the recorded reads of a result are unchanged."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from speclaunch.core.reads.bounded import read_regular
from speclaunch.core.reads.states import ABSENT, CONTENT, ENGINE, LOOKS, NO_DIGEST, digest, stamp


class Now:
    """The current state of recorded reads. Each path is read only once for all results.

    `installed`: returns the installed engine's catalogue. It is called only if a catalogue was
    recorded.
    """

    def __init__(self, installed: Callable[[], str | None]) -> None:
        self._states: dict[tuple[str, str], str] = {}
        self._holds: dict[tuple[str, str, str], bool] = {}
        self._installed = installed

    def holds(self, kind: str, name: str, state: str) -> bool:
        """True if repeating a read would give the same state."""
        key = (kind, name, state)
        found = self._holds.get(key)
        if found is None:
            found = self._holds[key] = self._is_so(kind, name, state)
        return found

    def _is_so(self, kind: str, name: str, state: str) -> bool:
        if kind == CONTENT:
            return _holds_content(name, state)
        if kind == ENGINE:
            return (self._installed() or ABSENT) == state
        look = LOOKS.get(kind)
        if look is None:
            return False
        at = (kind, name)
        if at not in self._states:
            self._states[at] = look(name)
        return self._states[at] == state


def _holds_content(path: str, state: str) -> bool:
    before, settled, stored_digest = state.rsplit(" ", 2)
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return False
        if settled == "1" and stamp(found) == before:
            return True
        if stored_digest == NO_DIGEST or str(found.st_size) != before.partition(" ")[0]:
            return False
        return digest(read_regular(path, found.st_size)) == stored_digest
    except (OSError, ValueError):
        return False
