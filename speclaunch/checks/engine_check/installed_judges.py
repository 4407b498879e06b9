"""Installed judges: added judges, the CPU engine, and an interpreter with SGLang.

An added judge is a folder in speclaunch's home:

    judges/NAME/
        site/         the wheel, and the pinned packages that its validation needs
        judge.json    its record, written last

A judge without torch uses speclaunch's interpreter, and `site` has all of the judge's packages.
Other judges use the CPU engine's interpreter and torch, and `site` has only packages that differ.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from speclaunch.checks.engine_check.engine_judge import (
    EngineJudge,
    command_of,
    digest_of,
    worker_digest,
)
from speclaunch.core import (
    JUDGE_RECORD,
    LaunchError,
    judges_home,
    make_private,
    read_regular,
    replace_file,
    require_own,
    speclaunch_home,
)
from speclaunch.engine import (
    SGLANG_VERSION,
    CpuEngine,
    find_runtime,
    held_versions,
    read_manifest,
    remove_added,
)

SITE = "site"


class AddedJudge(Struct, frozen=True):
    """Record of an installed judge (`judge.json`)."""

    name: str
    """Name of a release or fork."""
    release: str
    """Version of the judge's catalogue."""
    python: str
    """Interpreter that runs the judge."""
    source: str
    """Origin of the engine: `PyPI`, `installed`, or the name of a wheel or folder."""
    digest: str
    """Digest of the judge's packages; part of the cache key of its verdicts."""
    size: int
    """Size of the judge's files, in bytes."""
    site: bool = True
    """False if the interpreter already has all packages."""
    light: bool = False
    """True if a stand-in replaces torch."""
    catalogue: str = ""
    """Catalogue installed and removed with the judge; empty if there is none."""

    @property
    def paths(self) -> tuple[Path, ...]:
        return (folder(self.name) / SITE,) if self.site else ()


def folder(name: str) -> Path:
    """Return the folder of a judge."""
    return judges_home() / name


def added_judges() -> list[AddedJudge]:
    """Return all complete judges whose interpreter exists, sorted by name.

    Raises InputError if other users could have created them.
    """
    return [judge for judge in _read_all() if Path(judge.python).exists()]


def _read_all() -> Iterator[AddedJudge]:
    for path in sorted(judges_home().glob(f"*/{JUDGE_RECORD}")):
        require_own(path.parent, "the judge")
        if (path.parent / SITE).exists():
            require_own(path.parent / SITE, "the judge")
        names = AddedJudge.__struct_fields__
        try:
            document: dict[str, Any] = json.loads(read_regular(path))
            found = AddedJudge(**{name: value for name, value in document.items() if name in names})
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            continue  # incomplete: `judge add` installs it again
        if found.name == path.parent.name:
            yield found


def write(judge: AddedJudge) -> None:
    """Write the record of a judge, which marks it as complete."""
    text = json.dumps(asdict(judge), indent=1) + "\n"
    make_private(folder(judge.name))
    replace_file(folder(judge.name) / JUDGE_RECORD, text, 0o666)


def remove(name: str, *, catalogue: str = "") -> bool:
    """Remove a judge and its catalogue; return False if the judge does not exist.

    The catalogue remains if another judge uses it, or if it is `catalogue`.
    """
    place = folder(name)
    if name not in {path.name for path in judges_home().glob("[!.]*")} or not place.is_dir():
        return False
    brought = {judge.catalogue for judge in _read_all() if judge.name == name}
    (place / JUDGE_RECORD).unlink(missing_ok=True)  # from here on the judge counts as removed
    shutil.rmtree(place, ignore_errors=True)
    for release in brought - {other.catalogue for other in _read_all()} - {catalogue, ""}:
        remove_added(release)
    return True


def sweep() -> None:
    """Remove the leftovers of a killed installation; the caller must hold the lock."""
    for place in judges_home().glob(".new-*"):
        shutil.rmtree(place, ignore_errors=True)
    for place in judges_home().glob("[!.]*"):
        if place.is_dir() and not (place / JUDGE_RECORD).exists():
            shutil.rmtree(place, ignore_errors=True)


def size_of(place: Path) -> int:
    """Return the size of a folder's files in bytes."""
    return sum(path.lstat().st_size for path in place.rglob("*") if path.is_file())


_MADE: dict[tuple[str, str], EngineJudge] = {}
"""Judges by interpreter and digest. All callers share the loaded worker of a judge."""


def all_judges() -> list[EngineJudge]:
    """Return the added judges, then the CPU engine's, if any."""
    added = [
        _make_judge(judge.release, Path(judge.python), judge.digest, judge.paths, light=judge.light)
        for judge in added_judges()
    ]
    engine = cpu_judge()
    return [*added, *([engine] if engine is not None else [])]


def find_judge(version: str | None, python: Path | None) -> EngineJudge | None:
    """Return the judge of `python` if set, else of `version` (None: the newest).

    None if no such judge exists. A fork's judge is also found by the name it was added with.
    """
    if python is not None:
        return _of_interpreter(version, python)
    names = {version}
    names |= {added.release for added in added_judges() if added.name == version}
    found = [judge for judge in all_judges() if version is None or judge.release in names]
    if version is None:
        held = held_versions()
        found.sort(key=lambda j: held.index(j.release) if j.release in held else -1, reverse=True)
    return found[0] if found else None


def find_added_judge(version: str | None, python: Path | None) -> EngineJudge | None:
    """Return the judge added for a version; None without one, or if `python` is set."""
    is_added = python is None and any(
        version in (added.release, added.name) for added in added_judges()
    )
    return find_judge(version, None) if is_added else None


def _of_interpreter(version: str | None, python: Path) -> EngineJudge | None:
    """Return the judge for this interpreter's SGLang: an installed judge, or a new one.

    None if the interpreter cannot be used or has another version.
    """
    for judge in all_judges():
        same = judge.python == python.absolute() and not judge.paths
        if same and version in (None, judge.release):
            return judge
    try:
        runtime = find_runtime(str(python))
    except (LaunchError, OSError):
        return None
    is_other = version not in (None, runtime.sglang)
    if runtime.sglang is None or is_other or not runtime.executed:
        return None
    packages = json.dumps([dict(runtime.packages), str(runtime.sglang_path)], sort_keys=True)
    return _make_judge(runtime.sglang, runtime.interpreter, packages)


def cpu_judge() -> EngineJudge | None:
    """Return the CPU engine's judge; None if the engine is not installed.

    Raises InputError if other users could have made it.
    """
    engine = CpuEngine(speclaunch_home())
    manifest = read_manifest(engine)
    if manifest is None or "packages" not in manifest:
        return None
    require_own(engine.python.parent, "the CPU engine")
    packages = json.dumps(manifest["packages"], sort_keys=True)
    return _make_judge(SGLANG_VERSION, engine.python, packages)


def _make_judge(
    release: str, python: Path, identity: str, paths: tuple[Path, ...] = (), *, light: bool = False
) -> EngineJudge:
    digest = digest_of(release, identity, worker_digest())
    key = (str(python), digest)
    if key not in _MADE:
        command = command_of(python, light=light)
        _MADE[key] = EngineJudge(release, python, digest, paths=paths, command=command)
    return _MADE[key]
