"""What ranks tell each other: small JSON documents, validated when they are read.

Nothing of a shared directory is trusted to be whole or ours: what is not valid is as good as
absent.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from speclaunch.reads.safe_json import is_shallow
from speclaunch.record import record

VERSION = 1
STATE_BYTES = 256
"""The length of every state that is written."""
_LONGEST = 1 << 20
"""Bytes of a document that is read."""
_DEEPEST = 50
"""Its levels."""
_LONGEST_LEASE = 1e9


class Stage(StrEnum):
    """Where a rank is."""

    WAITING = "waiting"
    """It runs no engine."""
    STARTING = "starting"
    SERVING = "serving"
    FAILED = "failed"
    """Its engine has ended."""
    LEFT = "left"
    """It runs no engine and starts none any more."""


class Kind(StrEnum):
    """Why there is a decision."""

    BEGIN = "begin"
    MEMORY = "memory"
    """A rank ran out of memory: other settings."""
    RETURN = "return"
    """A rank came back after it was killed: the same settings, started together again."""
    END = "end"


@record
class Name:
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


@record
class Joined:
    """What a rank says of itself when it comes."""

    name: Name
    key: str
    """What it launches, as a digest: recipe, engine version, hardware."""
    begin: Mapping[str, Any] = field(default_factory=dict)
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


@record
class State:
    """What a rank says of itself; in what is written, `beat` grows as long as it lives."""

    beat: int = 0
    epoch: int = -1
    """The newest decision that it has adopted: no engine of an older one runs here."""
    stage: Stage = Stage.WAITING
    engine: int = -1
    """The decision that its engine was started for; -1 without an engine."""


@record
class Part:
    """The settings of one server, and the decision since which its engines run with them."""

    changes: Mapping[str, Any]
    since: int


@record
class Decision:
    """What holds from `epoch` on. There is one for each epoch, and it never changes."""

    epoch: int
    kind: Kind
    by: str
    """The rank whose decision it was (`Name`)."""
    parts: Mapping[str, Part]
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
        return self.kind is Kind.END


@record
class Failure:
    """An engine of that epoch ended."""

    name: Name
    epoch: int
    """The decision that the engine was started for."""
    memory: bool
    why: str
    """In a line."""
    cause: str = ""
    """By its name; empty where the log does not show it."""
    attempt: Mapping[str, Any] = field(default_factory=dict)
    """What the ladder needs to know of it."""


def dump(value: Any) -> bytes:
    """A record as it is written."""
    return json.dumps({"version": VERSION, **_plain(value)}, sort_keys=True).encode() + b"\n"


def load_joined(data: bytes) -> Joined | None:
    """None where it is not valid."""
    said = _read(data)
    name = _name(said.get("name"))
    begin, lease = said.get("begin"), said.get("lease_seconds")
    if name is None or not _texts(said, "key", "host", "space", "mark"):
        return None
    if not isinstance(begin, dict) or not isinstance(lease, int | float):
        return None
    if not 0 <= lease < _LONGEST_LEASE:  # NaN neither
        return None
    if type(said.get("fresh")) is not bool:
        return None
    pid = said.get("pid")
    return Joined(
        name,
        said["key"],
        begin,
        said["fresh"],
        float(lease),
        said["host"],
        said["space"],
        pid if type(pid) is int else 0,
        said["mark"],
    )


def dump_state(state: State) -> bytes:
    """A state as it is written over the one before: of one length, and with a sum, because a
    reader may see a part of each."""
    text = json.dumps({"version": VERSION, **_plain(state)}, sort_keys=True)
    return f"{zlib.crc32(text.encode()):08x} {text}".ljust(STATE_BYTES - 1).encode() + b"\n"


def load_state(data: bytes) -> State | None:
    """None where it is not valid."""
    total, _, text = data.strip().partition(b" ")
    if total != f"{zlib.crc32(text):08x}".encode():
        return None
    said = _read(text)
    stage = said.get("stage")
    if not _whole(said, "beat", "epoch", "engine") or stage not in set(Stage):
        return None
    return State(said["beat"], said["epoch"], Stage(stage), said["engine"])


def load_decision(data: bytes) -> Decision | None:
    """None where it is not valid."""
    said = _read(data)
    given, rung = said.get("parts"), said.get("rung")
    texts = _texts(said, "by", "why", "ending", "explanation", "help")
    if not texts or not _whole(said, "epoch") or not isinstance(given, dict):
        return None
    if said.get("kind") not in set(Kind) or not (rung is None or isinstance(rung, dict)):
        return None
    parts = {}
    for name, one in given.items():
        if not isinstance(one, dict) or not isinstance(one.get("changes"), dict):
            return None
        if not _whole(one, "since") or not 0 <= one["since"] <= said["epoch"]:
            return None
        parts[name] = Part(one["changes"], one["since"])
    return Decision(
        said["epoch"],
        Kind(said["kind"]),
        said["by"],
        parts,
        said["why"],
        rung,
        said["ending"],
        said["explanation"],
        said["help"],
    )


def load_failure(data: bytes) -> Failure | None:
    """None where it is not valid."""
    said = _read(data)
    name, attempt = _name(said.get("name")), said.get("attempt")
    if name is None or not _whole(said, "epoch") or not _texts(said, "why", "cause"):
        return None
    if not isinstance(attempt, dict) or type(said.get("memory")) is not bool:
        return None
    return Failure(name, said["epoch"], said["memory"], said["why"], said["cause"], attempt)


def _plain(value: Any) -> Any:
    from speclaunch.launch.journal import plain  # noqa: PLC0415 - what only reads needs none of it

    return plain(value)


def _read(data: bytes) -> dict[str, Any]:
    """The document; empty where it is none of ours."""
    try:
        said = json.loads(data) if len(data) <= _LONGEST else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(said, dict) or said.get("version") != VERSION:
        return {}
    return said if is_shallow(said, _DEEPEST) else {}


def _name(said: object) -> Name | None:
    if not isinstance(said, dict) or not _texts(said, "part") or not _whole(said, "rank", "life"):
        return None
    return Name(said["part"], said["rank"], said["life"])


def _texts(said: Mapping[str, Any], *names: str) -> bool:
    return all(type(said.get(name)) is str for name in names)


def _whole(said: Mapping[str, Any], *names: str) -> bool:
    return all(type(said.get(name)) is int for name in names)
