"""What ranks tell each other: small JSON documents and the names of their files.

Nothing of a shared directory is trusted to be whole or ours: what is not valid is as good as
absent.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import Struct, convert

from speclaunch.core import is_shallow

T = TypeVar("T")
VERSION = 1
STATE_BYTES = 256
"""The length of every state that is written."""
_LONGEST = 1 << 20
"""Bytes of a document that is read."""
_DEEPEST = 50
"""Its levels."""
_LONGEST_LEASE = 1e9


class RankStage(StrEnum):
    """Where a rank is."""

    WAITING = "waiting"
    """It runs no engine."""
    STARTING = "starting"
    SERVING = "serving"
    FAILED = "failed"
    """Its engine has ended."""
    LEFT = "left"
    """It runs no engine and starts none any more."""


class DecisionKind(StrEnum):
    """Why there is a decision."""

    BEGIN = "begin"
    MEMORY = "memory"
    """A rank ran out of memory: other settings."""
    RETURN = "return"
    """A rank came back after it was killed: the same settings, started together again."""
    END = "end"


class Name(Struct, frozen=True):
    """One life of a rank: a rank that was killed and started again has the next number."""

    part: str
    """The server that it is a rank of: all ranks of a part run the same settings."""
    rank: int
    life: int = 0

    @property
    def member(self) -> str:
        """The rank, whichever its life."""
        return f"{self.part}.{self.rank}"

    def __str__(self) -> str:
        return f"{self.member}.{self.life}"


class Joined(Struct, frozen=True):
    """What a rank says of itself when it comes."""

    name: Name
    key: str
    """What it launches, as a digest: recipe, engine version, hardware."""
    begin: Mapping[str, Any] = {}
    """The changes against the recipe that it would begin with."""
    fresh: bool = False
    """Whether it must not begin with what served before."""
    lease_seconds: float = 0.0
    host: str = ""
    space: str = ""
    """The boot and the process space in which `pid` means something."""
    pid: int = 0
    mark: str = ""
    """What the environment of all its engines contains."""


class RankState(Struct, frozen=True):
    """What a rank says of itself; in what is written, `beat` grows as long as it lives."""

    beat: int = 0
    epoch: int = -1
    """The newest decision that it has adopted: no engine of an older one runs here."""
    stage: RankStage = RankStage.WAITING
    engine: int = -1
    """The decision that its engine was started for; -1 without an engine."""


class PartSettings(Struct, frozen=True):
    """The settings of one server, and the decision since which its engines run with them."""

    changes: Mapping[str, Any]
    since: int


class Decision(Struct, frozen=True):
    """What holds from `epoch` on. There is one for each epoch, and it never changes."""

    epoch: int
    kind: DecisionKind
    by: str
    """The rank whose decision it was (`Name`)."""
    parts: Mapping[str, PartSettings]
    why: str = ""
    rung: Mapping[str, Any] | None = None
    """The rung of the ladder, where there is one: name, changes, why, cost."""
    ending: str = ""
    """Of the last one: `failed`, or `stopped` where that was meant for all."""
    explanation: str = ""
    help: str = ""

    @property
    def end(self) -> bool:
        """Whether it is the last one."""
        return self.kind is DecisionKind.END


class Failure(Struct, frozen=True):
    """An engine of that epoch ended."""

    name: Name
    epoch: int
    """The decision that the engine was started for."""
    memory: bool
    why: str
    """In a line."""
    cause: str = ""
    """By its name; empty where the log does not show it."""
    attempt: Mapping[str, Any] = {}
    """What the ladder needs to know of it."""


def dump(value: Any) -> bytes:
    """A record as it is written."""
    return _text(value).encode() + b"\n"


def load_joined(data: bytes) -> Joined | None:
    """None where it is not valid."""
    said = document(data)
    pid = said.get("pid")
    found = _loaded(Joined, {**said, "pid": pid if type(pid) is int else 0})
    return found if found is not None and 0 <= found.lease_seconds < _LONGEST_LEASE else None


def dump_state(state: RankState) -> bytes:
    """A state as it is written over the one before: of one length, and with a sum, because a
    reader may see a part of each."""
    text = _text(state)
    return f"{zlib.crc32(text.encode()):08x} {text}".ljust(STATE_BYTES - 1).encode() + b"\n"


def load_state(data: bytes) -> RankState | None:
    """None where it is not valid."""
    total, _, text = data.strip().partition(b" ")
    if total != f"{zlib.crc32(text):08x}".encode():
        return None
    return _loaded(RankState, document(text))


def load_decision(data: bytes) -> Decision | None:
    """None where it is not valid."""
    found = _loaded(Decision, document(data))
    if found is None or not all(0 <= one.since <= found.epoch for one in found.parts.values()):
        return None
    return found


def load_failure(data: bytes) -> Failure | None:
    """None where it is not valid."""
    return _loaded(Failure, document(data))


def _text(value: Any) -> str:
    from speclaunch.serving.launch.journal import plain  # noqa: PLC0415 - what only reads needs none of it

    return json.dumps({"version": VERSION, **plain(value)}, sort_keys=True)


def document(data: bytes) -> dict[str, Any]:
    """The document; empty where it is none of ours."""
    try:
        said = json.loads(data) if len(data) <= _LONGEST else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(said, dict) or said.get("version") != VERSION:
        return {}
    return said if is_shallow(said, _DEEPEST) else {}


def _loaded(kind: type[T], said: Mapping[str, Any]) -> T | None:
    try:
        return convert(said, kind)
    except ValueError:
        return None


# Which file of the shared directory is what.
#
# DIRECTORY/last-good/KEY.json            what served before
# DIRECTORY/JOB/g0001/epoch-00000.json    a decision
#                     life-server.1.2.json    the second life of rank 1 has come
#                     beat-server.1.2.json    its state, again and again
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
    """The name of a file of one life: that it has come, its state, or that it has ended."""
    return f"{kind}-{name}.json"


def epoch_file(kind: EpochFile, number: int) -> str:
    """The name of the file of a decision, or of its success with all ranks."""
    return f"{kind}-{number:05d}.json"


def failed_file(number: int, name: Name) -> str:
    """The name of the file about an engine of that epoch that ended."""
    return f"failed-{number:05d}-{name}.json"


def read_life(file: str) -> tuple[str, Name] | None:
    """Whether it is a `life`, a `beat` or a `gone`, and whose."""
    found = _LIFE.match(file)
    if found is None:
        return None
    kind, part, rank, number = found.groups()
    return kind, Name(part, int(rank), int(number))


def read_epoch(file: str) -> tuple[str, int] | None:
    """Whether it is an `epoch` or a `served`, and which."""
    found = _EPOCH.match(file)
    return None if found is None else (found[1], int(found[2]))


def is_failure(file: str) -> bool:
    """Whether it tells of an engine that ended."""
    return _FAILED.match(file) is not None


def generation_directory(job: Path, number: int) -> Path:
    """The directory of a generation."""
    return job / f"g{number:04d}"


def generations(names: list[str]) -> list[int]:
    """Their numbers, in their order."""
    found = (_GENERATION.match(name) for name in names)
    return sorted(int(one[1]) for one in found if one)
