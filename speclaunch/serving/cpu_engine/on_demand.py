"""CPU engines installed to compare releases: marked, limited in number and size, and removable.

An engine installed by the user is removed only on request.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Collection
from pathlib import Path

import psutil
from msgspec import Struct

from speclaunch.core import locked
from speclaunch.engine import RELEASES, CpuEngine
from speclaunch.serving.cpu_engine.programs import InstallError

MOST_ENGINES = 6
"""Maximum number of engines installed on demand; the least recently used are removed first."""
MOST_BYTES = 16 * 2**30
_ENGINE_BYTES = 2 * 2**30
"""Disk space to reserve for an engine (1.6 GiB with torch's CPU build)."""


class OnDemandEngine(Struct, frozen=True):
    """An engine installed on demand. `used`: last use, in seconds since the epoch."""

    engine: CpuEngine
    used: float
    bytes: int


def _mark(engine: CpuEngine) -> Path:
    return engine.root / "on-demand"


def mark_on_demand(engine: CpuEngine) -> None:
    """Mark an engine as installed on demand, last used now."""
    with contextlib.suppress(OSError):
        _mark(engine).touch(0o600)


def note_use(engine: CpuEngine) -> None:
    """Record the current time as the last use of an on-demand engine; do nothing for others."""
    if _mark(engine).is_file():
        mark_on_demand(engine)


def on_demand_engines(home: Path) -> list[OnDemandEngine]:
    """Return the engines that were installed on demand, least recently used first."""
    found = []
    for engine in (CpuEngine(home, release) for release in RELEASES):
        with contextlib.suppress(OSError):
            used = _mark(engine).stat().st_mtime
            found.append(OnDemandEngine(engine, used, _disk_bytes(engine.root)))
    return sorted(found, key=lambda entry: entry.used)


def _disk_bytes(folder: Path) -> int:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                found = Path(directory, name).lstat()
                total += found.st_blocks * 512 if stat.S_ISREG(found.st_mode) else 0
    return total


def make_room(home: Path, needed: Collection[str]) -> list[str]:
    """Remove on-demand engines until another fits; return the removed releases.

    `needed`: releases that must remain. Raises InstallError if the limits cannot be met.
    """
    found, removed = on_demand_engines(home), []
    while len(found) >= MOST_ENGINES or _total(found) + _ENGINE_BYTES > MOST_BYTES:
        free = [entry for entry in found if entry.engine.release not in needed]
        gone = next((entry for entry in free if _user(entry.engine) is None), None)
        if gone is None:
            raise InstallError(
                f"{len(found)} CPU engines installed on demand use "
                f"{_total(found) / 2**30:.1f} GiB, and each is in use or needed now",
                "stop a server, then: speclaunch engine rm cpu --release VERSION",
            )
        remove_engine(gone.engine)
        removed.append(gone.engine.release)
        found.remove(gone)
    return removed


def _total(found: Collection[OnDemandEngine]) -> int:
    return sum(entry.bytes for entry in found)


def _user(engine: CpuEngine) -> int | None:
    """Return the ID of a process that runs the engine's interpreter; None if there is none."""
    program = str(engine.python)
    for process in psutil.process_iter(["cmdline"]):
        if (process.info.get("cmdline") or [])[:1] == [program]:
            return process.pid
    return None


def remove_engine(engine: CpuEngine) -> None:
    """Remove an engine, but not the models, which all engines share.

    Raises InstallError if a process uses it, or it cannot be removed.
    """
    if (pid := _user(engine)) is not None:
        raise InstallError(
            f"process {pid} uses the CPU engine of SGLang {engine.release}",
            "find it with `speclaunch ps` and stop it",
        )
    try:
        with locked(engine.lock):
            engine.manifest.unlink(missing_ok=True)  # from here on it does not count as installed
            for path in engine.root.iterdir():
                if path in (engine.models, engine.lock):
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        if not engine.models.is_relative_to(engine.root):
            shutil.rmtree(engine.root)
    except OSError as error:
        raise InstallError(
            f"cannot remove {engine.root}: {error.strerror}", "check permissions"
        ) from error
