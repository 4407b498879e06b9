"""What a comparison measured, kept as it is measured: an interrupted one goes on where it was."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from speclaunch.bench.comparison import Schedule
from speclaunch.bench.kept_names import FILE, directory, kept_files
from speclaunch.bench.measurement import Request, Round
from speclaunch.launch import kept_work
from speclaunch.record import record

VERSION = 1


@record
class Kept:
    """One comparison on disk. `key` says what was compared: the same one goes on."""

    directory: Path
    key: str
    about: Mapping[str, Any]
    rounds: tuple[Round, ...] = ()

    @staticmethod
    def stamp() -> str:
        """Now, as it is written down."""
        return time.strftime("%Y-%m-%dT%H:%M:%S%z")

    def write(self, rounds: Sequence[Round], result: Mapping[str, Any] | None = None) -> None:
        """Write all of it, whole. Raises InputError where that cannot be done."""
        document = {
            "version": VERSION,
            "key": self.key,
            "updated": self.stamp(),
            "about": dict(self.about),
            "rounds": [_plain(one) for one in rounds],
            "result": dict(result) if result is not None else None,
        }
        kept_work.write(self.directory / FILE, document)


def key_of(commands: Sequence[Sequence[str]], schedule: Schedule) -> str:
    """A digest of all that decides what is measured: engine commands with their variables,
    workloads, rounds."""
    asked = {
        "commands": [list(one) for one in commands],
        "workloads": [asdict(one) for one in schedule.workloads],
        "concurrencies": schedule.concurrencies,
        "requests": schedule.requests,
        "blocks": schedule.blocks,
        "starts": schedule.starts,
        "seed": schedule.seed,
        "generator": schedule.generator,
    }
    return kept_work.digest(asked)


def begin(name: str, key: str, about: Mapping[str, Any], *, fresh: bool) -> Kept:
    """The newest unfinished comparison of the same key, or a new one. Raises InputError."""
    files = [] if fresh else reversed(kept_files())
    for folder, document in kept_work.unfinished(files, key):
        return Kept(folder, key, about, _rounds(document))
    begun = Kept(kept_work.new_folder(directory(), name), key, about)
    if fresh:  # from now on it is what is gone on with, not an older one
        begun.write(())
    return begun


def _rounds(document: Mapping[str, Any]) -> tuple[Round, ...]:
    return tuple(_round(one) for one in document.get("rounds", ()))


def _plain(one: Round) -> dict[str, Any]:
    return asdict(one)


def _round(said: Mapping[str, Any]) -> Round:
    requests = tuple(
        Request(**{**one, "positions": tuple(one["positions"])}) for one in said["requests"]
    )
    return Round(**{**said, "requests": requests})
