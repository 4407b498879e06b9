"""What a reader finds: the server commands of a file, their words, and where each was written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field
from msgspec.structs import force_setattr

from speclaunch.core import ExitCode, InputError, Place, Problem, SpeclaunchError

if TYPE_CHECKING:
    from speclaunch.engine import Surroundings


class NothingFoundError(SpeclaunchError):
    """There is no server command in the input (exit 3)."""

    exit_code = ExitCode.NOTHING


OTHERS_INSTEAD = ", which may add others instead"
ANOTHER_WAY = ", which may run it in another way"
DIFFERS = "it depends on a condition"
"""How a word's condition ends, or why it is not known, where other branches have other words."""

_NOTHING: Mapping[str, Word] = MappingProxyType({})


class Default(NamedTuple):
    """A stretch of a word that is the default of a variable: `${name-…}`, `filled`: `${name:-…}`.

    `inner` are the defaults inside of it.
    """

    start: int
    end: int
    name: str
    filled: bool
    inner: tuple[Default, ...]


class Word(Struct, frozen=True):
    """One word of a command line, and where it was written.

    `text` is the word after quoting and expansion.  When `evaluated` is False, what could not be
    evaluated stands in it as it is written (`${BASE}/model`, without the quotes around it).
    `place` is where that text is written: for a word out of a variable or an array that is inside
    the assignment, and `used_at` is the place that expands it.  `why` says what could not be
    evaluated, or (for an evaluated word) what was assumed.
    """

    text: str
    place: Place
    evaluated: bool = True
    why: str | None = None
    used_at: Place | None = None
    placeholder: bool = False
    """It stands for a value that the reader of a document has to fill in."""
    defaults: tuple[Default, ...] = ()
    """Where `text` is the default of a variable of the environment."""
    inside: bool = False
    """What is not known is decided in the file itself: the environment does not say it."""
    condition: str | None = None
    """When the script has it at all: "only under the condition of line 7"."""

    @property
    def has_alternatives(self) -> bool:
        """Whether another branch of the script has something else here, written elsewhere."""
        told = (self.condition or "").endswith((OTHERS_INSTEAD, ANOTHER_WAY))
        return told or (not self.evaluated and (self.why or "").startswith(DIFFERS))


class Dropped(Struct, frozen=True):
    """Something of the command that a recipe does not carry, and why.  `text` is one line."""

    text: str
    place: Place
    why: str
    is_lost: bool = False
    """The server would behave differently with it: an import warns of it."""

    def __post_init__(self) -> None:
        text = " ".join(self.text.split())
        force_setattr(self, "text", text if len(text) <= 200 else f"{text[:199]}…")


class Comment(Struct, frozen=True):
    """A comment in or directly above a command; `text` is without the `#`."""

    text: str
    place: Place


class InvocationKind(StrEnum):
    """How the server is started."""

    LAUNCH_SERVER = "launch_server"
    """``python -m sglang.launch_server``"""
    SERVE = "serve"
    """``sglang serve``"""
    SLIME = "slime"
    """``--sglang-…`` options of slime"""
    CONFIG = "config"
    """a file for SGLang's own ``--config``"""
    DYNAMO = "dynamo"
    """``python -m dynamo.sglang``; Dynamo's own options are among the dropped"""
    SRT_SLURM = "srt_slurm"
    """a role of an srt-slurm recipe"""
    VLLM = "vllm"
    """``vllm serve``, until an import translates it"""
    ENGINE = "engine"
    """``sglang.Engine(…)`` or ``ServerArgs(…)``: fields instead of flags"""


class ConfigFile(Struct, frozen=True):
    """The file behind SGLang's own ``--config``; `why` says why its `text` is not known."""

    shown: str
    text: str | None = None
    why: str | None = None


class Invocation(Struct, frozen=True):
    """One server command: its arguments, its environment, and what surrounds it.

    `words` are the server's own arguments only (for slime without the ``--sglang-`` prefix);
    `program` is everything before them.  `env` is the environment that the file gives it.
    `extras` are slime's own options by name (``--rollout-num-gpus-per-engine``): the first value,
    or the option itself when it has none.  `name` is that of the container, service or object.
    """

    kind: InvocationKind
    words: tuple[Word, ...]
    place: Place
    env: Mapping[str, Word] = field(default_factory=lambda: _NOTHING)
    program: tuple[Word, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    name: str | None = None
    comments: tuple[Comment, ...] = ()
    extras: Mapping[str, Word] = field(default_factory=lambda: _NOTHING)
    image: str | None = None
    """The container image that it runs in, where the file says one."""
    config: ConfigFile | None = None
    """The file of ``--config``: what it says depends on the version that reads it."""
    refused: tuple[Problem, ...] = ()
    """What the engine refuses before its parser sees a word."""
    hardware: str | None = None
    """The GPUs that the file runs it on, as `--hardware` takes them."""
    directory: str | None = None
    """Where its script goes before (`cd`), seen from where that is started."""
    read_only: str | None = None
    """Why nothing edits its words where they stand: the form that it is written in."""
    surroundings: Surroundings | None = None
    """Which part of which deployment it is, and how its pod is set up."""
    added: tuple[Word, ...] = ()
    """Words that the platform puts behind these: the engine gets them, the file does not say them.
    Their place is what makes the platform do it."""


class RouterCommand(Struct, frozen=True):
    """A command that starts a router before servers; `words` are its own arguments.

    `program` is its module or program, `name` that of the container or service around it.
    """

    program: str
    words: tuple[Word, ...]
    place: Place
    name: str | None = None


class Reading(Struct, frozen=True):
    """What a file holds: its server commands in order, and what is wrong with it."""

    invocations: tuple[Invocation, ...] = ()
    problems: tuple[Problem, ...] = ()
    """What could not be made sense of on the way, without giving up."""
    unread: tuple[Problem, ...] = ()
    """The parts that cannot be read; everything else of the file was."""
    misread: tuple[Problem, ...] = ()
    """What the shell takes for something else than its writer: a placeholder, a pasted link."""
    routers: tuple[RouterCommand, ...] = ()
    """The routers that are started beside the servers."""

    def commands(self, source: str) -> tuple[Invocation, ...]:
        """The server commands of `source`, at least one. Raises InputError where nothing could be
        read, NothingFoundError where there is none."""
        if self.invocations:
            return self.invocations
        if self.unread:
            raise InputError(self.unread)
        raise NothingFoundError(Problem(f"no SGLang server command in {source}"))


class ReadingBuilder:
    """What a reader finds, one part of a file after the other."""

    def __init__(self) -> None:
        self.invocations: list[Invocation] = []
        self.problems: list[Problem] = []
        self.unread: list[Problem] = []
        self.misread: list[Problem] = []
        self.routers: list[RouterCommand] = []

    @contextmanager
    def tolerant(self) -> Iterator[None]:
        """Inside, what makes reading a part fail is noted as unread."""
        try:
            yield
        except InputError as error:
            self.unread.extend(error.problems)

    def add(self, reading: Reading) -> None:
        """Everything that a part holds."""
        self.invocations.extend(reading.invocations)
        self.problems.extend(reading.problems)
        self.unread.extend(reading.unread)
        self.misread.extend(reading.misread)
        self.routers.extend(reading.routers)

    def reading(self) -> Reading:
        """All of it."""
        return Reading(
            tuple(self.invocations),
            tuple(self.problems),
            tuple(self.unread),
            tuple(self.misread),
            tuple(self.routers),
        )


def recipe_name(stem: str, number: int | None = None) -> str:
    """A file's stem as a recipe's name; the number tells several commands of a file apart."""
    name = re.sub(r"\W+", "_", stem).strip("_").lower() or "imported"
    return name if number is None else f"{name}_{number}"
