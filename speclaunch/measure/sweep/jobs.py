"""A sweep: its options, its jobs, the row that each of them becomes, and its folder.

```
sweep.json    the words and the jobs, for the jobs' own processes and for --resume
lock          locked by the command that looks after the sweep, as long as it lives
stop          there while the sweep is being ended
rows/KEY.json what came of a job, written whole; KEY.lock: locked by who runs it; KEY.log
hydra/        the launcher's own files
```
A row that is there is never made again. Locks are the kernel's: they end with their holder.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import asdict

from speclaunch.core import (
    InputError,
    LaunchError,
    Problem,
    expand_user,
    read_json,
    try_lock,
    write_json,
)

LOCAL = ("basic", "joblib", "submitit_local")
"""Launchers that run their jobs on this machine."""


class JobVerdict(StrEnum):
    """How a job ended."""

    SERVED = "served"
    """The engine started, generated, and ran with the speculation that was asked for."""
    FAILED = "failed"
    REFUSED = "refused"
    """It was never started: the rules, or the composition, say that it cannot serve."""
    FITS = "fits"
    """Of a plan, as are the rest: what its memory budget says."""
    TIGHT = "tight"
    FAILS = "fails"
    UNKNOWN = "unknown"

    @property
    def bad(self) -> bool:
        """Whether the exit code tells of it."""
        return self in (JobVerdict.FAILED, JobVerdict.FAILS)


class JobOptions(Struct, frozen=True):
    """What counts for all jobs of a sweep. Texts and lists are options of `launch` and `plan`."""

    plan: bool = False
    """Each job is a plan: nothing is started."""
    config_dir: tuple[str, ...] = ()
    engine: str | None = None
    hardware: str | None = None
    models: tuple[str, ...] = ()
    online: bool = False
    assume: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    trust_engine: bool = False

    def identity(self) -> dict[str, Any]:
        """The options that distinguish its jobs and folder from others."""
        found = asdict(self)
        del found["trust_engine"]  # the same jobs, whoever identifies their engine
        return found

    def words(self) -> list[str]:
        """The same options on the command line of a job."""
        said: list[str] = []
        for name, value in asdict(self).items():
            option = f"--{name.replace('_', '-')}"
            if isinstance(value, tuple):
                said += [f"{option}={one}" for one in value]
            elif isinstance(value, str):
                said.append(f"{option}={value}")
            elif value and name != "plan":
                said.append(option)
        return said


class Job(Struct, frozen=True):
    """One configuration of a sweep."""

    recipe: str
    overrides: tuple[str, ...]
    varied: tuple[str, ...]
    """The overrides that tell it from the others."""
    key: str
    """A digest of what it comes to (the composed recipe, engine version, options): its row is
    found by it, however the job was written."""
    refused: str | None = None
    """Why it is never started."""


class Row(Struct, frozen=True):
    """What came of a job."""

    key: str
    verdict: JobVerdict
    reason: str | None = None
    """Why it was refused or failed; of a plan, the budget in words."""
    acceptance_length: float | None = None
    """Tokens a verification; None where nothing speculates, or nothing was generated."""
    ready_seconds: float | None = None
    kv_tokens: int | None = None
    """Tokens that the KV cache holds, as the engine said (of a plan: as is predicted)."""
    engine: str | None = None
    log: str | None = None
    ended: str | None = None


class Planned(Struct, frozen=True):
    """A sweep that is ready to run: its jobs, and who runs them."""

    words: tuple[str, ...]
    """As they were given."""
    jobs: tuple[Job, ...]
    options: JobOptions
    launcher: str
    hydra: tuple[str, ...]
    directory: Path
    """Where the command was given: relative paths of recipes are below it."""

    @property
    def is_local(self) -> bool:
        """Whether the jobs run on this machine."""
        return self.launcher in LOCAL


_VERSION = 1
_POLL_S = 0.5


class Folder(Struct, frozen=True):
    """A sweep's folder, at `path`."""

    path: Path

    @property
    def hydra(self) -> Path:
        """Where the launcher writes."""
        return self.path / "hydra"

    def absolute(self) -> Folder:
        """The same folder, wherever a job looks from."""
        return Folder(expand_user(self.path).absolute())

    def log(self, key: str) -> Path:
        """What a job said."""
        return self.path / "rows" / f"{key}.log"

    def row(self, key: str) -> Row | None:
        """What came of a job; None where it is not done."""
        document = read_json(self.path / "rows" / f"{key}.json")
        try:
            return None if document is None else convert(document, Row)
        except ValidationError:
            return None

    def write(self, row: Row) -> None:
        """Keep a row, whole or not at all. Raises OSError."""
        write_json(self.path / "rows" / f"{row.key}.json", to_builtins(row))

    def forget(self, key: str) -> None:
        """Let a job be run again."""
        (self.path / "rows" / f"{key}.json").unlink(missing_ok=True)

    def create(self, planned: Planned) -> None:
        """Make the folder, and write down what the sweep is. Raises LaunchError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in (self.path / "rows", self.hydra):
                folder.mkdir(exist_ok=True)
            about = to_builtins(planned, enc_hook=str)
            write_json(self.path / "sweep.json", {"version": _VERSION, **about})
        except OSError as error:
            raise LaunchError(
                f"cannot write {self.path}: {error.strerror}", help="--directory chooses another"
            ) from error

    def planned(self) -> Planned:
        """What the sweep is. Raises InputError where the folder is none of a sweep."""
        document = read_json(self.path / "sweep.json")
        try:
            if document is None or document.pop("version") != _VERSION:
                raise ValueError
            return convert(document, Planned, dec_hook=lambda kind, text: kind(text))
        except (KeyError, ValueError):
            said = f"{self.path} is not the folder of a sweep"
            raise InputError(Problem(said, help="give the one that the sweep named")) from None

    @contextlib.contextmanager
    def looked_after(self) -> Iterator[None]:
        """Be the one that looks after this sweep. Raises LaunchError where another one does."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if try_lock(fd, tries=40) is False:  # a job that looks holds it for a moment
                other = os.pread(fd, 20, 0).decode(errors="replace").strip()
                raise LaunchError(
                    f"the sweep in {self.path} is looked after by process {other}",
                    help="wait for it, or stop it with Ctrl-C; --directory begins another",
                )
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            self._stop.unlink(missing_ok=True)
            yield
        finally:
            os.close(fd)

    def stop(self) -> None:
        """Tell all jobs to end, wherever they run."""
        with contextlib.suppress(OSError):
            self._stop.touch()

    def is_stopped(self, *, local: bool) -> bool:
        """Whether the jobs shall end: they were told to, or who looked after them is gone.

        On another machine (`local` False) the second is unknown, and jobs of a queue may outlive
        the command that submitted them.
        """
        if self._stop.exists() or not self.path.exists():
            return True
        if not local:
            return False
        try:
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return True
        try:
            return try_lock(fd) is True
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def claimed(self, key: str, stopped: Callable[[], bool]) -> Iterator[bool]:
        """Be the one that runs a job: false where the sweep ended before who runs it did."""
        path = self.path / "rows" / f"{key}.lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while try_lock(fd) is False:
                if stopped():
                    yield False
                    return
                time.sleep(_POLL_S)
            yield True
        finally:
            os.close(fd)

    @property
    def _stop(self) -> Path:
        return self.path / "stop"
