"""The judges that were added: each a folder below the home of speclaunch, with its packages.

    judges/NAME/
        site/         the wheel, and what it pins of what its validation needs
        judge.json    written last: what it is

One without torch runs on the interpreter of speclaunch, and has all of its packages there. The
others have what the CPU engine has otherwise, and its interpreter and torch.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from speclaunch.cpu.manifest import require_own
from speclaunch.cpu.process import write_atomically
from speclaunch.engine.added_catalogues import remove_added
from speclaunch.home import JUDGE_RECORD, judges_home
from speclaunch.reads.bounded import read_regular
from speclaunch.record import record

SITE = "site"


@record
class Kept:
    """One added judge."""

    name: str
    """As it was added: a release, or the name of a fork."""
    release: str
    """The version that its catalogue has."""
    python: str
    """The interpreter that runs it."""
    source: str
    """Where the engine came from: `PyPI`, `installed`, the name of a wheel or folder."""
    digest: str
    """Of its packages."""
    size: int
    """Bytes that are its own."""
    site: bool = True
    """False where the interpreter has all of it."""
    light: bool = False
    """Whether torch is stood in for."""
    catalogue: str = ""
    """The catalogue that came with it, and goes with it."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The folders of its packages."""
        return (folder(self.name) / SITE,) if self.site else ()


def folder(name: str) -> Path:
    """The folder of one."""
    return judges_home() / name


def kept() -> list[Kept]:
    """All that are whole and whose interpreter is there, by name. Raises InputError if other users
    may have made them."""
    return [one for one in _read_all() if Path(one.python).exists()]


def _read_all() -> Iterator[Kept]:
    for path in sorted(judges_home().glob(f"*/{JUDGE_RECORD}")):
        require_own(path.parent, "the judge")
        if (path.parent / SITE).exists():
            require_own(path.parent / SITE, "the judge")
        names = {one.name for one in fields(Kept)}
        try:
            document: dict[str, Any] = json.loads(read_regular(path))
            found = Kept(**{name: value for name, value in document.items() if name in names})
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            continue  # half of one is none: `judge add` makes it anew
        if found.name == path.parent.name:
            yield found


def write(one: Kept) -> None:
    """Note that a judge is whole."""
    document = {field.name: getattr(one, field.name) for field in fields(one)}
    write_atomically(folder(one.name) / JUDGE_RECORD, json.dumps(document, indent=1) + "\n")


def remove(name: str, *, catalogue: str = "") -> bool:
    """Remove one, and the catalogue that it brought; whether there was any.

    The catalogue stays where another judge brought it too, or it is `catalogue`.
    """
    place = folder(name)
    if name not in {path.name for path in judges_home().glob("[!.]*")} or not place.is_dir():
        return False
    brought = {one.catalogue for one in _read_all() if one.name == name}
    (place / JUDGE_RECORD).unlink(missing_ok=True)  # from here on it is none, whatever is left
    shutil.rmtree(place, ignore_errors=True)
    for one in brought - {other.catalogue for other in _read_all()} - {catalogue, ""}:
        remove_added(one)
    return True


def sweep() -> None:
    """Remove what is left of an addition that was killed; with the lock held."""
    for place in judges_home().glob(".new-*"):
        shutil.rmtree(place, ignore_errors=True)
    for place in judges_home().glob("[!.]*"):
        if place.is_dir() and not (place / JUDGE_RECORD).exists():
            shutil.rmtree(place, ignore_errors=True)


def size_of(place: Path) -> int:
    """Bytes of the files of a folder."""
    return sum(path.lstat().st_size for path in place.rglob("*") if path.is_file())
