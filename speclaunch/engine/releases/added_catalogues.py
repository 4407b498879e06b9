"""Catalogues that the user added on this machine, for unshipped releases and forks."""

from __future__ import annotations

from pathlib import Path

from speclaunch.core import speclaunch_home
from speclaunch.engine.releases import forks
from speclaunch.engine.releases.catalogue import held_versions


def every_name() -> frozenset[str]:
    """Return the names of all available catalogues: shipped, added, and of forks."""
    place = _directory()
    names = (path.stem for path in forks.file_of("*", place).parent.glob("*.json"))
    return frozenset((*held_versions(place), *names))


def remove_added(version: str) -> bool:
    """Remove an added catalogue, never a shipped one. Return True if it existed."""
    place = _directory()
    file = forks.file_of(version, place) if forks.MARK in version else place / f"{version}.json"
    try:
        file.unlink()
    except OSError:
        return False
    return True


def _directory() -> Path:
    return speclaunch_home() / "catalogue"
