"""A sweep's options, jobs, rows and folder, and the checks before any job runs.

```
sweep.json    the arguments and jobs, for job processes and for --resume
lock          locked by the command that manages the sweep, while it runs
stop          exists while the sweep is being stopped
rows/KEY.json result of a job, written atomically; KEY.lock: locked by its runner; KEY.log
hydra/        the launcher's own files
```
An existing row is never recomputed. Locks are kernel locks, released when their holder exits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict

from speclaunch.checks import Lookup, Rule, Severity
from speclaunch.core import (
    InputError,
    LaunchError,
    SpeclaunchError,
    expand_user,
    holds_secret,
    json_value,
    read_json,
    try_lock,
    write_json,
)
from speclaunch.deployments import SweepJob, load, prepare
from speclaunch.engine import is_secret_key
from speclaunch.serving import absent_paths, local_lookup, preflight

LOCAL = ("basic", "joblib", "submitit_local")
"""Launchers that run jobs on this machine."""


class JobVerdict(StrEnum):
    """Verdict on a job."""

    SERVED = "served"
    """The engine started, generated text, and used the requested speculation."""
    FAILED = "failed"
    REFUSED = "refused"
    """Never started, because the rules or the composition show that the job cannot serve."""
    FITS = "fits"
    """Memory verdict of a plan, as are TIGHT, FAILS and UNKNOWN."""
    TIGHT = "tight"
    FAILS = "fails"
    UNKNOWN = "unknown"

    @property
    def bad(self) -> bool:
        """True if the verdict makes the sweep exit with an error."""
        return self in (JobVerdict.FAILED, JobVerdict.FAILS)


class JobOptions(Struct, frozen=True):
    """Options of all jobs of a sweep. All but `plan` are passed to each job."""

    plan: bool = False
    """True if each job is a plan and nothing is started."""
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
        """Return the options that identify this sweep's jobs and folder."""
        found = asdict(self)
        del found["trust_engine"]  # jobs are the same, regardless of who identifies their engine
        return found

    def words(self) -> list[str]:
        found: list[str] = []
        for name, value in asdict(self).items():
            option = f"--{name.replace('_', '-')}"
            if isinstance(value, tuple):
                found += [f"{option}={item}" for item in value]
            elif isinstance(value, str):
                found.append(f"{option}={value}")
            elif value and name != "plan":
                found.append(option)
        return found


class Job(Struct, frozen=True):
    """One configuration of a sweep."""

    recipe: str
    overrides: tuple[str, ...]
    varied: tuple[str, ...]
    """Overrides that distinguish the job from the others."""
    key: str
    """Digest of the composed recipe, engine version and options.

    The job's row has this key, regardless of how the user specified the job.
    """
    refused: str | None = None
    """Reason why the job is never started; None if it can start."""


class Row(Struct, frozen=True):
    """Row of the sweep's table: the result of one job."""

    key: str
    verdict: JobVerdict
    reason: str | None = None
    """Reason for refusal or failure; for a plan, the budget as text; else None."""
    acceptance_length: float | None = None
    """Tokens per verify step; None without speculation or output."""
    ready_seconds: float | None = None
    kv_tokens: int | None = None
    """KV cache capacity in tokens: reported by the engine or predicted; None if unknown."""
    engine: str | None = None
    log: str | None = None
    ended: str | None = None


class Planned(Struct, frozen=True):
    """A sweep that is ready to run: its jobs and its launcher."""

    words: tuple[str, ...]
    """The user's arguments, unchanged."""
    jobs: tuple[Job, ...]
    options: JobOptions
    launcher: str
    hydra: tuple[str, ...]
    directory: Path
    """Working directory of the command; relative recipe paths start here."""

    @property
    def is_local(self) -> bool:
        return self.launcher in LOCAL


_VERSION = 1
_POLL_S = 0.5


class Folder(Struct, frozen=True):
    """Folder of a sweep, with the files that this module's docstring lists."""

    path: Path

    @property
    def hydra(self) -> Path:
        return self.path / "hydra"

    def absolute(self) -> Folder:
        return Folder(expand_user(self.path).absolute())

    def log(self, key: str) -> Path:
        return self.path / "rows" / f"{key}.log"

    def row(self, key: str) -> Row | None:
        """Return the row of a job; None if the job is not done."""
        document = read_json(self.path / "rows" / f"{key}.json")
        try:
            return None if document is None else convert(document, Row)
        except ValidationError:
            return None

    def write(self, row: Row) -> None:
        """Write a row atomically. Raises OSError."""
        write_json(self.path / "rows" / f"{row.key}.json", json_value(row))

    def forget(self, key: str) -> None:
        """Delete the row of a job so that it runs again."""
        (self.path / "rows" / f"{key}.json").unlink(missing_ok=True)

    def create(self, planned: Planned) -> None:
        """Create the folder and store the sweep. Raises LaunchError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for folder in (self.path / "rows", self.hydra):
                folder.mkdir(exist_ok=True)
            about = json_value(planned)
            write_json(self.path / "sweep.json", {"version": _VERSION, **about})
        except OSError as error:
            raise LaunchError(
                f"cannot write {self.path}: {error.strerror}",
                help="choose another directory with --directory",
            ) from error

    def planned(self) -> Planned:
        """Return the stored sweep. Raises InputError if the folder is not a sweep."""
        document = read_json(self.path / "sweep.json")
        try:
            if document is None or document.pop("version") != _VERSION:
                raise ValueError
            return convert(document, Planned, dec_hook=lambda kind, text: kind(text))
        except (KeyError, ValueError):
            message = f"{self.path} is not a sweep's directory"
            raise InputError(message, help="name the directory that the sweep printed") from None

    @contextlib.contextmanager
    def looked_after(self) -> Iterator[None]:
        """Hold the lock of this sweep. Raises LaunchError if another process holds it."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if try_lock(fd, tries=40) is False:  # a job that checks the lock holds it briefly
                other = os.pread(fd, 20, 0).decode(errors="replace").strip()
                raise LaunchError(
                    f"the sweep in {self.path} is running in process {other}",
                    help="wait for it or stop it with Ctrl-C, or start another with --directory",
                )
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            self._stop.unlink(missing_ok=True)
            yield
        finally:
            os.close(fd)

    def stop(self) -> None:
        """Signal the jobs on all machines to stop."""
        with contextlib.suppress(OSError):
            self._stop.touch()

    def is_stopped(self, *, local: bool) -> bool:
        """True if the jobs must stop: the stop file exists, or the managing process is gone.

        If `local` is False, the managing process is not checked: queued jobs may outlive the
        command that submitted them.
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
        """Hold the lock of a job.

        Yields True, or False if the sweep stops while another process runs the job.
        """
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


def check_jobs(
    jobs: Sequence[SweepJob],
    options: JobOptions,
    found: Lookup,
    rules: Sequence[Rule],
    *,
    local: bool,
    launches: bool = True,
) -> tuple[Job, ...]:
    """Return each job with its key, and the reason if the job will not be started.

    `local`: the jobs run on this machine, with its engine and hardware; otherwise the recipe and
    the options set both. `launches`: the jobs start next and may run a recipe's interpreter. Raises
    InputError for a secret in the overrides, because files store overrides.
    """
    for job in jobs:
        secret = next((override for override in job.overrides if _tells_a_secret(override)), None)
        if secret is not None:
            key = secret.partition("=")[0]
            raise InputError(
                f"{key} is a secret, but a sweep stores its arguments in files",
                help=f"read it from a variable: {key}='${{oc.env:NAME}}'",
            )
    return tuple(
        _checked(job, options, found, rules, local=local, launches=launches) for job in jobs
    )


def _tells_a_secret(override: str) -> bool:
    key, _, value = override.partition("=")
    return (is_secret_key(key) or holds_secret(value)) and "oc.env:" not in value.replace("\\", "")


def _checked(
    job: SweepJob,
    options: JobOptions,
    found: Lookup,
    rules: Sequence[Rule],
    *,
    local: bool,
    launches: bool,
) -> Job:
    starts = local and not options.plan
    folders = tuple(Path(name) for name in options.config_dir)
    try:
        recipe = load(job.recipe, job.overrides, folders)
        prepared = prepare(recipe, options.engine, dry_run=not starts, launches=launches)
    except SpeclaunchError as error:
        return _job(job, _digest([job.recipe, *job.overrides], options), str(error))
    key = _digest([prepared.recipe.deployment, prepared.version, prepared.python], options)
    facts = local_lookup(found, recipe, probe=local, cpu=bool(prepared.cpu))
    absent = absent_paths(prepared) if starts else []
    result = preflight(prepared, facts, rules, absent)
    reasons = [
        f"{finding.code} {finding.message}"
        for finding in result.findings
        if finding.severity is Severity.ERROR
    ]
    reasons += [problem.message for problem in result.absent]
    return _job(job, key, "; ".join(reasons) or None)


def _job(job: SweepJob, key: str, refused: str | None) -> Job:
    return Job(job.recipe, job.overrides, job.varied, key, refused)


def _digest(parts: Sequence[Any], options: JobOptions) -> str:
    text = json.dumps([parts, options.identity()], sort_keys=True, default=_parts)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parts(value: Any) -> Any:
    """Return a recipe section without its description, and any other value as text."""
    names = getattr(type(value), "model_fields", None)
    if names is None:
        return str(value)
    return {name: getattr(value, name) for name in names if name != "description"}
