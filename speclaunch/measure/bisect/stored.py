"""A search on disk: every finished probe. An interrupted search continues with the same command."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins

from speclaunch.core import speclaunch_home
from speclaunch.measure.bisect.search import ReleaseProbe
from speclaunch.measure.upgrade.observation import ReleaseAnswers
from speclaunch.serving import unfinished_work

FILE = "bisect.json"
VERSION = 1


class Progress(Struct, frozen=True):
    """Finished probes, and the good release's answers if the check compares with them."""

    probes: tuple[ReleaseProbe, ...] = ()
    reference: ReleaseAnswers | None = None


class StoredBisect(Struct):
    """A search on disk. `key` identifies its releases and its check; the same key continues it."""

    directory: Path
    key: str
    about: Mapping[str, Any]
    progress: Progress

    def add(self, probe: ReleaseProbe, reference: ReleaseAnswers | None) -> None:
        """Store a finished probe. Raises InputError if writing fails."""
        self.progress = Progress((*self.progress.probes, probe), reference)
        self.write()

    def write(self, result: Mapping[str, Any] | None = None) -> None:
        """Replace the stored file atomically. Raises InputError if writing fails."""
        document = {
            "version": VERSION,
            "key": self.key,
            "updated": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "about": dict(self.about),
            **to_builtins(self.progress),
            "result": result,
        }
        unfinished_work.write(self.directory / FILE, document)


def begin_bisect(name: str, key: str, about: Mapping[str, Any], *, fresh: bool) -> StoredBisect:
    """Return the newest unfinished search of the same key, or a new one. Raises InputError."""
    home = speclaunch_home() / "bisects"
    files = [] if fresh else sorted(home.glob(f"*/{FILE}"), reverse=True)
    for folder, document in unfinished_work.unfinished(files, key):
        try:
            return StoredBisect(folder, key, about, convert(document, Progress, strict=False))
        except ValidationError:
            continue
    begun = StoredBisect(unfinished_work.new_folder(home, name), key, about, Progress())
    if fresh:  # a later run continues this search, not an older one
        begun.write()
    return begun
