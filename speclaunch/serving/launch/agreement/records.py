"""Ranks that must agree, and the messages between them: small JSON documents and their file names.

A file in a shared directory may be incomplete or foreign. An invalid file counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from msgspec import Struct, convert

from speclaunch.core import LaunchError, expand_user, is_shallow, json_value
from speclaunch.engine import nodes_of, value_of

if TYPE_CHECKING:
    from speclaunch.deployments import Agreement


SERVER = "server"
"""Part name for a deployment of one server."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")
_JOB_HELP = "set launch.agreement.job to a name that is new for each run and the same on all ranks"


class RankGroup(Struct, frozen=True):
    """Ranks that must agree, and this rank's position among them."""

    directory: Path
    job: str
    part: str
    rank: int
    parts: Mapping[str, int]
    """Number of ranks of each server."""
    lease_seconds: float
    timeout_seconds: float
    key: str = ""
    """Digest of the launch; the same on all ranks of a server."""
    begin: Mapping[str, Any] = {}
    """Recipe changes with which this rank begins."""
    fresh: bool = False
    """True to ignore the last known good settings."""


def group_of(
    settings: Agreement, args: Mapping[str, Any], environment: Mapping[str, str]
) -> RankGroup | None:
    """Return the ranks that must agree according to `settings` (`launch.agreement`); None if they
    name no directory. Raises LaunchError."""
    if settings.directory is None:
        return None
    directory = expand_user(settings.directory)
    if not directory.is_absolute():
        raise LaunchError(
            f"launch.agreement.directory: {settings.directory} is not an absolute path",
            help="name a directory that all hosts share",
        )
    rank, nodes = nodes_of(args)
    part = settings.part or _role(args)
    parts = dict(settings.parts) or {part: nodes}
    for name in parts:
        if not _NAME.match(name):
            raise LaunchError(
                f"launch.agreement.parts: {name!r} is not a valid name",
                help="use letters, digits, '-' and '_'",
            )
    if parts.get(part) != nodes:
        raise LaunchError(
            f"launch.agreement.parts: {part!r} has {parts.get(part, 0)} ranks, "
            f"but nnodes is {nodes}",
            help=f"set launch.agreement.part to this server's part (known: {', '.join(parts)})",
        )
    job = settings.job or job_of(environment, alone=len(parts) == 1)
    if job is None:
        raise LaunchError("launch.agreement: the job is unknown", help=_JOB_HELP)
    return RankGroup(
        directory,
        _file_name(job),
        part,
        rank,
        parts,
        settings.lease_seconds,
        settings.timeout_seconds,
    )


def job_of(environment: Mapping[str, str], *, alone: bool) -> str | None:
    """Return the platform's name for this run, the same on all ranks; None if unknown.

    A job that Slurm requeues is a new run. A LeaderWorkerSet group keeps its name in all its runs;
    the shared directory shows which of them have ended. This name identifies one server only, so it
    is used only if the deployment has a single one (`alone`).
    """
    slurm = environment.get("SLURM_JOB_ID")
    if slurm:
        return f"slurm-{slurm}-{environment.get('SLURM_RESTART_COUNT') or 0}"
    leader = environment.get("LWS_LEADER_ADDRESS")
    if leader and alone:
        return f"lws-{leader}"
    return None


def _role(args: Mapping[str, Any]) -> str:
    mode = value_of(args, "disaggregation_mode")
    return mode if mode in ("prefill", "decode") else SERVER


def _file_name(job: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", job)[:80]
    return plain if plain == job else f"{plain}-{hashlib.sha256(job.encode()).hexdigest()[:8]}"


T = TypeVar("T")
VERSION = 1
STATE_BYTES = 256
"""Length in bytes of every written state."""
_LONGEST = 1 << 20
"""Maximum size of a document, in bytes."""
_DEEPEST = 50
_LONGEST_LEASE = 1e9


class RankStage(StrEnum):
    """Stage that a rank publishes in its `RankState`."""

    WAITING = "waiting"
    """The rank runs no engine."""
    STARTING = "starting"
    SERVING = "serving"
    FAILED = "failed"
    """The rank's engine has ended."""
    LEFT = "left"
    """The rank runs no engine and will start none."""


class DecisionKind(StrEnum):
    """Reason for a decision."""

    BEGIN = "begin"
    MEMORY = "memory"
    """A rank ran out of memory, so the settings change."""
    RETURN = "return"
    """A rank returned after it was killed, so all ranks of its part restart with the same
    settings."""
    END = "end"


class Name(Struct, frozen=True):
    """Name of one life of a rank, from its start to its end. Each restart increments the number."""

    part: str
    """Name of the rank's server. All ranks of a server run with the same settings."""
    rank: int
    life: int = 0

    @property
    def member(self) -> str:
        """Name of the rank, the same for all its lives."""
        return f"{self.part}.{self.rank}"

    def __str__(self) -> str:
        return f"{self.member}.{self.life}"


class Joined(Struct, frozen=True):
    """Record that a rank creates when it joins; it never changes."""

    name: Name
    key: str
    """Digest of the rank's launch: recipe, engine version, hardware."""
    begin: Mapping[str, Any] = {}
    fresh: bool = False
    """True to ignore the last known good settings."""
    lease_seconds: float = 0.0
    host: str = ""
    space: str = ""
    """Boot and process namespace in which `pid` is valid."""
    pid: int = 0
    mark: str = ""
    """Mark in the environment of all engines of this life."""


class RankState(Struct, frozen=True):
    """State of a rank. `beat` increases with every write, which proves that the rank is alive."""

    beat: int = 0
    epoch: int = -1
    """Epoch of the newest adopted decision; the rank runs no engine of an older decision."""
    stage: RankStage = RankStage.WAITING
    engine: int = -1
    """Epoch of the decision for which the engine was started; -1 without an engine."""


class PartSettings(Struct, frozen=True):
    """Settings of one server, and the decision that introduced them."""

    changes: Mapping[str, Any]
    since: int


class Decision(Struct, frozen=True):
    """Settings of all servers from `epoch` on. Each epoch has one decision, which never changes."""

    epoch: int
    kind: DecisionKind
    by: str
    """Name of the rank that made the decision, as text."""
    parts: Mapping[str, PartSettings]
    why: str = ""
    rung: Mapping[str, Any] | None = None
    """Rung that led to the decision (name, changes, why, cost); None if no rung did."""
    ending: str = ""
    """For the last decision: `failed`, or `stopped` if a stop was requested; otherwise empty."""
    explanation: str = ""
    help: str = ""

    @property
    def end(self) -> bool:
        return self.kind is DecisionKind.END


class Failure(Struct, frozen=True):
    """Report that a rank's engine has ended, and why."""

    name: Name
    epoch: int
    """Epoch of the decision for which the engine was started."""
    memory: bool
    why: str
    cause: str = ""
    """Name of the cause; empty if the log does not show it."""
    attempt: Mapping[str, Any] = {}
    """Attempt as JSON, from `ranks.document`; empty unless memory ran out."""


def dump(value: Any) -> bytes:
    """Return a record as one line of JSON, with the format version."""
    return _text(value).encode() + b"\n"


def load_joined(data: bytes) -> Joined | None:
    """Return the record of a joining rank; None if it is not valid."""
    content = document(data)
    pid = content.get("pid")
    found = _loaded(Joined, {**content, "pid": pid if type(pid) is int else 0})
    return found if found is not None and 0 <= found.lease_seconds < _LONGEST_LEASE else None


def dump_state(state: RankState) -> bytes:
    """Return a state as bytes of fixed length, with a checksum. The bytes overwrite the previous
    state in place, so a reader may see a mix of both."""
    text = _text(state)
    return f"{zlib.crc32(text.encode()):08x} {text}".ljust(STATE_BYTES - 1).encode() + b"\n"


def load_state(data: bytes) -> RankState | None:
    """Return the state; None if it is not valid."""
    total, _, text = data.strip().partition(b" ")
    if total != f"{zlib.crc32(text):08x}".encode():
        return None
    return _loaded(RankState, document(text))


def load_decision(data: bytes) -> Decision | None:
    """Return the decision; None if it is not valid."""
    found = _loaded(Decision, document(data))
    if found is None or not all(0 <= part.since <= found.epoch for part in found.parts.values()):
        return None
    return found


def load_failure(data: bytes) -> Failure | None:
    """Return the failure; None if it is not valid."""
    return _loaded(Failure, document(data))


def _text(value: Any) -> str:
    return json.dumps({"version": VERSION, **json_value(value)}, sort_keys=True)


def document(data: bytes) -> dict[str, Any]:
    """Return a record's JSON object; empty if the data is invalid or has another format version."""
    try:
        content = json.loads(data) if len(data) <= _LONGEST else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict) or content.get("version") != VERSION:
        return {}
    return content if is_shallow(content, _DEEPEST) else {}


def _loaded(kind: type[T], content: Mapping[str, Any]) -> T | None:
    try:
        return convert(content, kind)
    except ValueError:
        return None


# Files of the shared directory:
#
# DIRECTORY/last-good/KEY.json            known good settings
# DIRECTORY/JOB/g0001/epoch-00000.json    a decision
#                     life-server.1.2.json    the second life of rank 1 has joined
#                     beat-server.1.2.json    its state, overwritten repeatedly
#                     failed-00003-server.1.2.json   its engine of epoch 3 ended
#                     gone-server.1.1.json    seen to have ended by the next life on its host
#                     served-00003.json   all ranks served with the settings of epoch 3

_LIFE = re.compile(r"(life|beat|gone)-([A-Za-z0-9_-]+)\.(\d+)\.(\d+)\.json\Z")
_EPOCH = re.compile(r"(epoch|served)-(\d{5,})\.json\Z")
_FAILED = re.compile(r"failed-(\d{5,})-([A-Za-z0-9_-]+)\.(\d+)\.(\d+)\.json\Z")
_GENERATION = re.compile(r"g(\d{4,})\Z")
LifeFile = Literal["life", "beat", "gone"]
EpochFile = Literal["epoch", "served"]


def life_file(kind: LifeFile, name: Name) -> str:
    """Return a life's file name by `kind`: `life` (record), `beat` (state) or `gone` (end)."""
    return f"{kind}-{name}.json"


def epoch_file(kind: EpochFile, number: int) -> str:
    """Return an epoch's file name by `kind`: `epoch` (decision) or `served` (all ranks served)."""
    return f"{kind}-{number:05d}.json"


def failed_file(number: int, name: Name) -> str:
    """Return the name of the file that records the end of a rank's engine in an epoch."""
    return f"failed-{number:05d}-{name}.json"


def read_life(file: str) -> tuple[str, Name] | None:
    """Return `life`, `beat` or `gone`, and the name of the life; None for other files."""
    found = _LIFE.match(file)
    if found is None:
        return None
    kind, part, rank, number = found.groups()
    return kind, Name(part, int(rank), int(number))


def read_epoch(file: str) -> tuple[str, int] | None:
    """Return `epoch` or `served`, and the epoch number; None for other files."""
    found = _EPOCH.match(file)
    return None if found is None else (found[1], int(found[2]))


def is_failure(file: str) -> bool:
    """True for the name of a file that records the end of an engine."""
    return _FAILED.match(file) is not None


def generation_directory(job: Path, number: int) -> Path:
    """Return the directory of generation `number` of a job."""
    return job / f"g{number:04d}"


def generations(names: list[str]) -> list[int]:
    """Return the generation numbers in directory names, in ascending order."""
    found = (_GENERATION.match(name) for name in names)
    return sorted(int(match[1]) for match in found if match)
