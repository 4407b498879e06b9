"""Records of a launch: its journal, sufficient to replay it, and the settings that served last.

Every event rewrites `journal.json` in the run directory atomically, so the file is readable even if
speclaunch is ended by `kill -9`. On a full disk the engine continues without its journal; the next
event retries.

Last known good settings belong to one combination of settings, engine and hardware. Each
combination has one file, named by its digest, with the changes that served, newest first. Files are
read and written under a lock, and replaced atomically. The least recently used files are dropped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import fields

from speclaunch import __version__
from speclaunch.core import (
    Redactor,
    json_value,
    locked,
    make_private,
    read_json,
    speclaunch_home,
    write_json,
)

if TYPE_CHECKING:
    from speclaunch.deployments import Deployment
    from speclaunch.engine import Hardware
    from speclaunch.serving.launch.client import Verification
    from speclaunch.serving.launch.diagnosis.interface import Diagnosis
    from speclaunch.serving.launch.phases import PhaseStep, PhaseTracker


FILE = "journal.json"
VERSION = 1
_MOST_EVENTS = 100


def default_directory() -> Path:
    """Return the directory for runs if `launch.log_dir` is not set."""
    return speclaunch_home() / "runs"


class LaunchState(StrEnum):
    """State that a journal records for its launch."""

    STARTING = "starting"
    SERVING = "serving"
    WAITING = "waiting"
    """One engine has ended, and the next has not started."""
    STOPPING = "stopping"
    ENDED = "ended"
    LOST = "lost"
    """speclaunch was killed before it wrote an outcome. Detected by readers, never written."""


class RecipeEntry(Struct, frozen=True):
    """The recipe of a launch."""

    name: str = ""
    path: str = ""
    overrides: tuple[str, ...] = ()
    args: Mapping[str, Any] = {}


class EngineEntry(Struct, frozen=True):
    """The engine of a launch."""

    version: str = ""
    python: str = ""


class HardwareEntry(Struct, frozen=True):
    """The hardware of a launch. `gpus` are indices."""

    name: str
    count: int
    memory_mib: int | None = None
    driver: str | None = None
    declared: bool = False
    gpus: tuple[int, ...] = ()


class BudgetEntry(Struct, frozen=True):
    """The memory prediction before a launch."""

    fit: str
    why: str = ""
    phase: str | None = None
    tokens: int | None = None
    running_requests: int | None = None
    mem_fraction_static: float | None = None


class PlanEntry(Struct, frozen=True):
    """Effective settings that differ from the explicit settings, and the memory budget."""

    resolved: Mapping[str, Any] = {}
    undecided: Mapping[str, Any] = {}
    reasons: Mapping[str, str] = {}
    changes: tuple[str, ...] = ()
    budget: BudgetEntry | None = None


class JournalHeader(Struct, frozen=True):
    """Sections of a journal that are known before the first attempt, without secrets."""

    recipe: RecipeEntry = RecipeEntry()
    engine: EngineEntry = EngineEntry()
    hardware: HardwareEntry | None = None
    address: str = ""
    model: str = ""
    plan: PlanEntry | None = None
    locked: Mapping[str, float] = {}
    """Acceptance lengths in the recipe's lock, by certificate."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> JournalHeader:
        """Return the header of a journal. Missing or malformed sections get their defaults."""
        found = {}
        for field in fields(cls):
            with contextlib.suppress(KeyError, ValidationError):
                found[field.name] = convert(document[field.name], field.type)
        return cls(**found)


class Journal:
    """Journal of one launch, written at every event."""

    def __init__(self, directory: Path, header: JournalHeader, secrets: Sequence[str]) -> None:
        """Write a new journal; docs/reference/runs.md describes its format."""
        import psutil  # noqa: PLC0415 - only launches need it, not readers of journals

        self.directory = directory
        self.error: str | None = None
        """Error from writing the last event; None if it was written."""
        self._redactor = Redactor(secrets)
        self._attempts: list[dict[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        self._document: dict[str, Any] = {
            "version": VERSION,
            "name": directory.name,
            "speclaunch": __version__,
            "state": LaunchState.STARTING,
            "started": now(),
            "updated": now(),
            "supervisor": {
                "pid": os.getpid(),
                "created": psutil.Process().create_time(),
                "host": socket.gethostname(),
            },
            **json_value(header),
            "attempts": self._attempts,
            "events": self._events,
            "served": None,
            "ending": None,
        }
        self._write()

    def attempt(
        self,
        number: int,
        changes: Mapping[str, Any],
        rung: Struct | None,
        *,
        command: Sequence[str],
        environment: Mapping[str, str | None],
        log: Path,
    ) -> None:
        self._attempts.append(
            {
                "number": number,
                "started": now(),
                "changes": dict(changes),
                "rung": json_value(rung),
                "command": list(command),
                "environment": dict(environment),
                "log": log.name,
                "pid": None,
                "milestones": [],
                "tokens": None,
                "ready_seconds": None,
                "verification": None,
                "ended": None,
                "ending": None,
                "exit_code": None,
                "reason": None,
                "diagnosis": None,
            }
        )
        self._state(LaunchState.STARTING)

    def spawned(self, pid: int | None) -> None:
        self._last["pid"] = pid
        self._write()

    def progress(self, tracker: PhaseTracker) -> None:
        steps = _milestones(tracker.steps)
        if steps != self._last["milestones"]:
            self._last["milestones"] = steps
            self._last["tokens"] = tracker.max_total_tokens
            self._write()

    def ready(self, verification: Verification | None, seconds: float) -> None:
        self._last["ready_seconds"] = round(seconds, 3)
        self._last["verification"] = json_value(verification)
        if verification is None or verification.ok:
            self._state(LaunchState.SERVING)
        else:
            self._write()

    def served(self, changes: Mapping[str, Any], overrides: Sequence[str]) -> None:
        self._document["served"] = {
            "attempt": self._last["number"],
            "changes": dict(changes),
            "overrides": list(overrides),
        }
        self._write()

    def event(self, kind: str, text: str, facts: Mapping[str, Any]) -> None:
        """Record an event of a serving engine, and drop the oldest events beyond `_MOST_EVENTS`."""
        self._events.append({"at": now(), "kind": kind, "text": text, **facts})
        del self._events[:-_MOST_EVENTS]
        self._write()

    def course(self, course: Mapping[str, Any]) -> None:
        """Record the speculation statistics of the serving engine over time."""
        self._last["course"] = dict(course)
        self._write()

    def attempt_ended(
        self,
        ending: str,
        exit_code: int | None,
        reason: str | None,
        steps: Sequence[PhaseStep],
        diagnosis: Diagnosis | None,
    ) -> None:
        self._last["milestones"] = _milestones(steps)
        self._last.update(
            ended=now(),
            ending=ending,
            exit_code=exit_code,
            reason=reason,
            diagnosis=json_value(diagnosis),
        )
        self._write()

    def waiting(self) -> None:
        self._state(LaunchState.WAITING)

    def stopping(self) -> None:
        self._state(LaunchState.STOPPING)

    def ended(
        self, result: str, reason: str | None, exit_code: int, explanation: str | None = None
    ) -> None:
        """Record the end of the launch. `explanation`: why no other settings were tried."""
        self._document["ending"] = {
            "result": result,
            "reason": reason,
            "explanation": explanation,
            "exit_code": exit_code,
            "ended": now(),
        }
        self._state(LaunchState.ENDED)

    @property
    def document(self) -> Mapping[str, Any]:
        return self._document

    @property
    def _last(self) -> dict[str, Any]:
        return self._attempts[-1]

    def _state(self, state: LaunchState) -> None:
        self._document["state"] = state
        self._write()

    def _write(self) -> None:
        self._document["updated"] = now()
        try:
            write_json(self.directory / FILE, self._redactor.value(self._document))
            self.error = None
        except OSError as error:
            self.error = error.strerror or str(error)


def now() -> str:
    """Return the current time in UTC, to the millisecond (ISO 8601)."""
    seconds = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{stamp}.{int(seconds % 1 * 1000):03d}Z"


def _milestones(steps: Sequence[PhaseStep]) -> list[dict[str, Any]]:
    """Return the phases with their start and end, in seconds since the spawn."""
    return [
        {
            "phase": step.phase.value,
            "started": round(step.started, 3),
            "ended": None if step.ended is None else round(step.ended, 3),
            "detail": step.detail,
        }
        for step in steps
    ]


_VERSION = 2
"""Version of the format. Version 1 had one entry per file, at the top of the document, and the
recipe's name in the digest."""
_ENTRIES = 4
_FILES = 256
_NOT_MEMORY = frozenset(
    {"host", "port", "served_model_name", "nccl_port", "node_rank", "dist_init_addr"}
)
"""Server arguments that do not affect memory use."""
_NOT_MEMORY_VARIABLES = frozenset(
    {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "SGLANG_HOST_IP", "HOST_IP"}
)
"""Variables that name the network of one host."""


class LastGood(Struct, frozen=True):
    """Recipe changes with which an engine served, with the time and the run."""

    changes: Mapping[str, Any]
    since: float
    run: str
    tokens: int | None = None


def settings_key(deployment: Deployment, version: str, hardware: Hardware | None) -> str:
    """Return the key of known good settings: a digest of the composed arguments and variables, the
    engine version and the hardware.

    A different argument or variable gives a different key, so a changed recipe starts afresh. The
    spelling of an argument, the recipe's name, secrets and addresses have no effect.
    """
    from speclaunch.core import is_secret_variable  # noqa: PLC0415
    from speclaunch.engine import (  # noqa: PLC0415 - few commands compute keys
        canonical,
        is_secret_argument,
    )

    args = {
        canonical(name): value
        for name, value in deployment.args.items()
        if value is not None and canonical(name) not in _NOT_MEMORY and not is_secret_argument(name)
    }
    env = {
        name: value
        for name, value in deployment.engine.env.items()
        if not is_secret_variable(name) and name not in _NOT_MEMORY_VARIABLES
    }
    machine: list[Any] = []
    if hardware is not None:
        gpus = [(gpu.name, gpu.memory_bytes) for gpu in hardware.gpus]
        machine = [hardware.name, hardware.count, hardware.memory_mib, gpus]
    text = json.dumps([args, env, version, machine], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def recall(name: str) -> LastGood | None:
    """Return the last known good settings of key `name`; None if there are none."""
    entries = _read(name)
    return entries[0] if entries else None


def remember(name: str, changes: Mapping[str, Any], run: str, tokens: int | None) -> None:
    """Store changes with which an engine served. Without changes, drop the settings of key `name`,
    because the recipe itself served.

    An unwritable disk does not stop the launch; the next launch walks the ladder again.
    """
    if not changes:
        forget(name)
        return
    with _locked():
        others = [entry for entry in _read(name) if entry.changes != changes]
        _write(name, [LastGood(dict(changes), time.time(), run, tokens), *others][:_ENTRIES])
        _drop_oldest()


def forget(name: str, changes: Mapping[str, Any] | None = None) -> None:
    """Delete the failed `changes` of key `name`; without `changes`, delete all its settings."""
    with _locked():
        left = [] if changes is None else [e for e in _read(name) if e.changes != changes]
        if left:
            _write(name, left)
        else:
            with contextlib.suppress(OSError):
                _path(name).unlink()


def _read(name: str) -> list[LastGood]:
    document = read_json(_path(name)) or {}
    version, entries = document.get("version"), document.get("entries")
    if version != _VERSION or not isinstance(entries, list):
        entries = [document] if version == 1 else []
    found = []
    for entry in entries:
        with contextlib.suppress(TypeError, ValueError):
            found.append(convert({"run": "", **entry}, LastGood))
    return [entry for entry in found if entry.changes]


def _write(name: str, entries: list[LastGood]) -> None:
    with contextlib.suppress(OSError):
        make_private(_path(name).parent)
        write_json(_path(name), {"version": _VERSION, "entries": json_value(entries)})


def _drop_oldest() -> None:
    with contextlib.suppress(OSError):
        files = sorted(_directory().glob("*.json"), key=lambda file: file.stat().st_mtime)
        for file in files[: max(0, len(files) - _FILES)]:
            file.unlink()


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(locked(_directory().with_suffix(".lock")))
        yield


def _directory() -> Path:
    return speclaunch_home() / "state" / "last-good"


def _path(name: str) -> Path:
    return _directory() / f"{name}.json"
