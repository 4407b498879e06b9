"""The record of a lock: what served, exactly; and what differs from it.

A lock is a recipe with the section `lock`. It has the recipe's arguments and variables as they
served, so it starts the same engine again; the section records everything that no argument fixes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, ValidationError, convert

from speclaunch.core import Place, Problem

FORMAT = 1
"""Version of the section `lock`."""


class LockedPackage(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A package of the engine's environment."""

    name: str
    version: str
    hash: str | None = None
    """Digest of its installed files as its metadata lists them: `sha256:…`."""


class LockedEngine(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The engine, and everything installed next to it."""

    version: str
    python: str | None = None
    """Version of its Python."""
    packages: tuple[LockedPackage, ...] = ()


class LockedFile(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file of a checkpoint; `name` is relative to its directory."""

    name: str
    size: int
    hash: str


class LockedCheckpoint(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A checkpoint: target or draft."""

    role: str
    name: str
    """Path or name on the hub, as its argument has it."""
    revision: str | None = None
    """Commit on the hub; None for a directory without one."""
    files: tuple[LockedFile, ...] = ()


class LockedHardware(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The machine that it served on."""

    name: str
    count: int = 1
    memory_mib: int | None = None
    capability: int | None = None
    """CUDA compute capability: 90 for Hopper."""
    driver: str | None = None
    cpu: str | None = None
    """Model of the processor."""
    cpus: int | None = None
    memory_gib: int | None = None
    """Main memory."""
    system: str | None = None
    """Operating system, its release, and architecture."""


class LockedImage(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The container image of the deployment."""

    name: str
    digest: str | None = None
    """`sha256:…`; None if its name has none."""

    @property
    def text(self) -> str:
        """Name and digest, as the recipe has it."""
        return self.name if self.digest is None else f"{self.name}@{self.digest}"


class LockedCertificate(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A stored measurement or proof of the recipe."""

    kind: str
    """`bench` or `prove`."""
    name: str
    """Folder of the stored result."""
    date: str
    """Day of the measurement."""
    result: str


class Lock(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Record of what served."""

    format: int = FORMAT
    recipe: str
    """File name of its recipe in the same directory, or name of a shipped recipe."""
    role: str | None = None
    """Role of a recipe with several."""
    overrides: tuple[str, ...] = ()
    """Overrides of the recipe, without secrets."""
    steps: Mapping[str, Any] = {}
    """Server arguments that recovery changed before it served."""
    resolved: Mapping[str, Any] = {}
    """Effective server arguments that differ from the engine's defaults."""
    checkpoints: tuple[LockedCheckpoint, ...] = ()
    hardware: LockedHardware | None = None
    image: LockedImage | None = None
    certificates: tuple[LockedCertificate, ...] = ()
    engine: LockedEngine
    """Last, because it is the longest."""


def lock_of(value: object) -> Lock:
    """Return the section `lock` of a recipe. Raises ValueError with the reason."""
    try:
        found = convert(value, Lock)
    except ValidationError as error:
        message, _, at = str(error).partition(" - at `$")
        at = at.rstrip("`").removeprefix(".")
        raise ValueError(f"{at}: {message}" if at else message) from None
    if found.format != FORMAT:
        raise ValueError(
            f"format {found.format} is unknown; this speclaunch reads {FORMAT}: update it, or "
            "write the lock again"
        )
    return found


class LockSubject(StrEnum):
    """The kind of thing that a lock fixes."""

    ARGUMENT = "argument"
    VARIABLE = "variable"
    RESOLVED = "resolved value"
    ENGINE = "engine"
    PACKAGE = "package"
    CHECKPOINT = "checkpoint"
    REVISION = "revision"
    FILE = "weight file"
    HARDWARE = "hardware"
    IMAGE = "image"


class LockDifference(Struct, frozen=True):
    """One difference from a lock."""

    subject: LockSubject
    name: str
    locked: str | None
    """Text of the locked value; None: absent."""
    found: str | None
    place: Place | None = None
    refuses: bool = True
    """False if it only warns: the same settings should serve there."""

    @property
    def message(self) -> str:
        """One line that names the difference."""
        what = f"{self.subject} {self.name}"
        if self.locked is None:
            return f"{what} is {self.found}, and the lock has none"
        if self.found is None:
            return f"{what} is missing: the lock has {self.locked}"
        return f"{what} is {self.found}, locked {self.locked}"

    @property
    def problem(self) -> Problem:
        """The difference with its place."""
        return Problem(self.message, self.place)


def lock_differences(lock: Lock, now: Lock) -> tuple[LockDifference, ...]:
    """Return the differences of two records. What `now` does not know is no difference.

    Hardware refuses by accelerator, count, memory and capability; the driver, the processor and the
    system warn.
    """
    return (
        *_engine(lock.engine, now.engine),
        *_resolved(lock.resolved, now.resolved),
        *_checkpoints(lock.checkpoints, now.checkpoints),
        *image_difference(lock.image, now.image),
        *_hardware(lock.hardware, now.hardware),
    )


def _engine(locked: LockedEngine, now: LockedEngine) -> Iterator[LockDifference]:
    if locked.version != now.version:
        yield LockDifference(LockSubject.ENGINE, "SGLang", locked.version, now.version)
    if locked.python and now.python and locked.python != now.python:
        yield LockDifference(LockSubject.ENGINE, "Python", locked.python, now.python)
    if not now.packages:
        return
    before, after = _by_name(locked.packages), _by_name(now.packages)
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if old is None or new is None or old.version != new.version:
            yield LockDifference(
                LockSubject.PACKAGE, name, old and old.version, new and new.version
            )
        elif old.hash is not None and new.hash is not None:
            yield LockDifference(
                LockSubject.PACKAGE,
                f"{name} {old.version}",
                f"files {_short(old.hash)}",
                f"files {_short(new.hash)}",
            )


def _resolved(locked: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[LockDifference]:
    for name in sorted(locked.keys() | now.keys()):
        old, new = locked.get(name), now.get(name)
        if old != new:
            yield LockDifference(LockSubject.RESOLVED, name, _text(old), _text(new))


def _checkpoints(
    locked: Iterable[LockedCheckpoint], now: Iterable[LockedCheckpoint]
) -> Iterator[LockDifference]:
    before = {checkpoint.role: checkpoint for checkpoint in locked}
    after = {checkpoint.role: checkpoint for checkpoint in now}
    for role in dict.fromkeys((*before, *after)):
        old, new = before.get(role), after.get(role)
        if old is None or new is None:
            before_name, name = (None if item is None else item.name for item in (old, new))
            yield LockDifference(LockSubject.CHECKPOINT, role, before_name, name)
            continue
        if old.revision != new.revision:
            name = f"of {old.name} ({role})"
            yield LockDifference(LockSubject.REVISION, name, old.revision, new.revision)
        files, found = _by_name(old.files), _by_name(new.files)
        for name in sorted(files.keys() | found.keys()):
            one, other = files.get(name), found.get(name)
            if one != other:
                yield LockDifference(
                    LockSubject.FILE, f"{name} of {old.name} ({role})", _file(one), _file(other)
                )


def image_difference(
    locked: LockedImage | None, now: LockedImage | None, place: Place | None = None
) -> Iterator[LockDifference]:
    """Yield the difference of two images, if any."""
    if locked != now:
        old, new = (None if image is None else image.text for image in (locked, now))
        yield LockDifference(LockSubject.IMAGE, "of deploy.image", old, new, place)


_REFUSES = ("name", "count", "memory_mib", "capability")


def _hardware(
    locked: LockedHardware | None, now: LockedHardware | None
) -> Iterator[LockDifference]:
    if locked is None or now is None:
        return
    for name in LockedHardware.__struct_fields__:
        old, new = getattr(locked, name), getattr(now, name)
        if old != new and old is not None and new is not None:
            yield LockDifference(
                LockSubject.HARDWARE, name, _text(old), _text(new), refuses=name in _REFUSES
            )


def _by_name(items: Iterable[Any]) -> dict[str, Any]:
    return {item.name: item for item in items}


def _text(value: Any) -> str | None:
    """Return a value as a recipe has it; None if it is absent."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def _short(digest: str) -> str:
    return digest[:19]


def _file(file: LockedFile | None) -> str | None:
    return None if file is None else f"{file.size} bytes {_short(file.hash)}"
