"""Lock records (the exact servers that ran), and their differences.

A lock is a recipe with the section `lock`. Its arguments and variables are those of the server that
ran, so it starts the same engine again. The section records what arguments do not determine.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, ValidationError, convert

from speclaunch.core import Place, Problem
from speclaunch.engine import HashedFile, InstalledPackage

FORMAT = 1
"""Format version of the section `lock`."""


class LockedEngine(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Engine, and every package installed with it."""

    version: str
    python: str = "unknown"
    """Version of the engine's Python."""
    packages: tuple[InstalledPackage, ...] = ()


class LockedCheckpoint(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Checkpoint that the engine reads."""

    role: str
    name: str
    """Path or hub name, as in the server argument."""
    revision: str | None = None
    """Commit on the hub; None for a directory without one."""
    files: tuple[HashedFile, ...] = ()


class LockedHardware(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Machine that the server ran on."""

    name: str
    count: int = 1
    memory_mib: int | None = None
    capability: int | None = None
    """CUDA compute capability (90 for Hopper); None if not recorded."""
    driver: str | None = None
    cpu: str | None = None
    """Model of the processor; None if not recorded."""
    cpus: int | None = None
    memory_gib: int | None = None
    """Main memory in GiB; None if not recorded."""
    system: str | None = None
    """Operating system, its release, and architecture; None if not recorded."""


class LockedImage(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Container image of the deployment."""

    name: str
    digest: str | None = None
    """`sha256:…`; None if the image name has no digest."""

    @property
    def text(self) -> str:
        """Name and digest, as in the recipe."""
        return self.name if self.digest is None else f"{self.name}@{self.digest}"


class LockedCertificate(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Measurement or proof of the recipe."""

    kind: str
    """`bench`, `prove`, `contract` or `smoke` (the first generation of the launch that wrote the
    lock)."""
    name: str = ""
    """Directory name of the stored result."""
    date: str = ""
    """Day of the measurement; empty for `smoke`."""
    result: str = ""
    accept_length: float | None = None

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


class Lock(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Record of a server that ran."""

    format: int = FORMAT
    recipe: str
    """File name of the recipe in the lock's directory, or name of a shipped recipe."""
    role: str | None = None
    """Role of the server; None for a recipe without roles."""
    overrides: tuple[str, ...] = ()
    """Overrides of the recipe, without secrets."""
    steps: Mapping[str, Any] = {}
    """Server arguments that recovery changed before the engine served."""
    resolved: Mapping[str, Any] = {}
    """Effective server arguments that differ from the engine's defaults."""
    variables: Mapping[str, str] = {}
    """Engine variables inherited from the environment."""
    checkpoints: tuple[LockedCheckpoint, ...] = ()
    hardware: LockedHardware | None = None
    image: LockedImage | None = None
    certificates: tuple[LockedCertificate, ...] = ()
    engine: LockedEngine
    """Engine and packages; the last field, because the list of packages is long."""


def lock_of(value: object) -> Lock:
    """Parse a recipe's `lock` section. Raises ValueError with the reason."""
    try:
        found = convert(value, Lock)
    except ValidationError as error:
        message, _, at = str(error).partition(" - at `$")
        at = at.rstrip("`").removeprefix(".")
        raise ValueError(f"{at}: {message}" if at else message) from None
    if found.format != FORMAT:
        raise ValueError(
            f"format {found.format} is unknown (expected {FORMAT}): update speclaunch, or write "
            "the lock again"
        )
    return found


IMAGE = "of deploy.image"
"""Name of the image in a LockDifference."""


class LockSubject(StrEnum):
    """Kind of fact that a lock records."""

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
    """Difference between a lock and the current deployment."""

    subject: LockSubject
    name: str
    locked: str | None
    """Text of the locked value; None if absent."""
    found: str | None
    place: Place | None = None
    refuses: bool = True
    """False if the settings should serve despite the difference, which is then a warning."""

    @property
    def message(self) -> str:
        what = f"{self.subject} {self.name}"
        if self.locked is None:
            return f"{what} is {self.found}, and the lock has none"
        if self.found is None:
            return f"{what} is missing: the lock has {self.locked}"
        return f"{what} is {self.found}, locked {self.locked}"

    @property
    def problem(self) -> Problem:
        return Problem(self.message, self.place)


def lock_differences(lock: Lock, now: Lock) -> Iterator[LockDifference]:
    """Yield the differences between two records. Unknown hardware is not a difference.

    A different accelerator, count, memory or capability is an error. A different driver, processor
    or system is a warning.
    """
    here, there = ({c.role for c in some.checkpoints if c.files} for some in (lock, now))
    before, after = dict(_facts(lock, here & there)), dict(_facts(now, here & there))
    for subject, name in dict.fromkeys((*before, *after)):
        locked, found = before.get((subject, name)), after.get((subject, name))
        is_hardware = subject is LockSubject.HARDWARE
        if locked == found or (is_hardware and None in (locked, found)):
            continue
        refuses = not is_hardware or name in _REFUSES
        yield LockDifference(subject, name, locked, found, refuses=refuses)


_OF_A_RANK = ("node_rank", "dist_init_addr", "SGLANG_HOST_IP")
"""Arguments and variables that differ between a server's ranks.

Only their values in the recipe are compared, not their effective values.
"""
_REFUSES = ("name", "count", "memory_mib", "capability")


def _facts(lock: Lock, roles: Collection[str]) -> Iterator[tuple[tuple[LockSubject, str], str]]:
    """Yield `(subject, name), text` of each fact; of a checkpoint not in `roles`, only the name."""
    yield (LockSubject.ENGINE, "SGLang"), lock.engine.version
    yield (LockSubject.ENGINE, "Python"), lock.engine.python
    for package in lock.engine.packages:
        files = f" (files {package.hash[:19]})" if package.hash else ""
        yield (LockSubject.PACKAGE, package.name), f"{package.version}{files}"
    for name, value in sorted(lock.resolved.items()):
        if name not in _OF_A_RANK:
            yield (LockSubject.RESOLVED, name), _text(value)
    for name, value in sorted(lock.variables.items()):
        if name not in _OF_A_RANK:
            yield (LockSubject.VARIABLE, name), value
    for checkpoint in lock.checkpoints:
        if checkpoint.files:
            yield (LockSubject.CHECKPOINT, checkpoint.role), checkpoint.name
        if checkpoint.role in roles:
            of = f"of {checkpoint.name} ({checkpoint.role})"
            yield (LockSubject.REVISION, of), checkpoint.revision or "unknown"
            for file in checkpoint.files:
                digest = f"{file.size} bytes {file.hash[:19]}"
                yield (LockSubject.FILE, f"{file.name} {of}"), digest
    if lock.image is not None:
        yield (LockSubject.IMAGE, IMAGE), lock.image.text
    for name in LockedHardware.__struct_fields__ if lock.hardware is not None else ():
        if (value := getattr(lock.hardware, name)) is not None:
            yield (LockSubject.HARDWARE, name), _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
