"""Results of a reader: server commands, their tokens and places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field
from msgspec.structs import force_setattr

from speclaunch.core import ExitCode, InputError, Place, Problem, SpeclaunchError, lazy

if TYPE_CHECKING:
    from speclaunch.engine import ServerContext


class NothingFoundError(SpeclaunchError):
    """Input without a server command (exit 3)."""

    exit_code = ExitCode.NOTHING


VLLM = "\ue010llm"
"""Marked form of `vllm` while its commands are imported (`vllm.py`). No file contains it."""
VLLM_IMAGE = f"{VLLM}-openai"
"""Image that runs vLLM's server."""
_SERVER = (
    r"sglang(?:_router)?\.launch_server|sglang\s+serve|sglang/launch_server\.py|--sglang-"
    rf"|dynamo\.sglang|engine_kwargs\.sglang\.|\bmtp\.enable_rollout|{VLLM}"
)
SERVER = lazy(_SERVER)
"""Pattern of text that may contain a server command. Other text is not read."""
READ = lazy(
    rf"{_SERVER}|sglang_router|sglang-router|model-gateway|\bsmg\b|disaggregation\.(?:mini|launch)_lb"
    r"|dynamo\.frontend"
)
"""Pattern of manifest text that may contain a server or a router."""

OTHERS_INSTEAD = "; another branch may add different arguments"
ANOTHER_WAY = "; another branch may run it differently"
NOT_BY_DEFAULT = "; by default it does not hold"
DIFFERS = "it depends on a condition"
"""Start of a token's `why` if other branches have different tokens."""

_NOTHING: Mapping[str, Word] = MappingProxyType({})


class Default(NamedTuple):
    """Range of a token that is a variable's default: `${name-…}`, or `${name:-…}` if `filled`.

    `inner` contains the defaults inside this default.
    """

    start: int
    end: int
    name: str
    filled: bool
    inner: tuple[Default, ...]


class Word(Struct, frozen=True):
    """One token of a command line, and its place.

    `text` is the token after quote removal and expansion. If `evaluated` is False, the parts that
    could not be evaluated are unchanged (`${BASE}/model`, without quotes). `place` is the place of
    the text. For a token from a variable or an array, `place` is inside the assignment, and
    `used_at` is the place that expands it. `why` is the reason for an unevaluated part or, for an
    evaluated token, the assumption.
    """

    text: str
    place: Place
    evaluated: bool = True
    why: str | None = None
    used_at: Place | None = None
    placeholder: bool = False
    """True for a value that the reader of a document has to fill in."""
    defaults: tuple[Default, ...] = ()
    """Ranges of `text` that come from defaults of environment variables."""
    inside: bool = False
    """True if an unknown value depends on the file, not on the environment."""
    condition: str | None = None
    """Condition under which the token exists: "only under the condition of line 7"; else None."""

    @property
    def has_alternatives(self) -> bool:
        """True if another branch of the script assigns a different text."""
        has_others = (self.condition or "").endswith((OTHERS_INSTEAD, ANOTHER_WAY))
        return has_others or (not self.evaluated and (self.why or "").startswith(DIFFERS))


class Dropped(Struct, frozen=True):
    """Part of the command that a recipe omits, and why. `text` is one line."""

    text: str
    place: Place
    why: str
    is_lost: bool = False
    """True if the part would change the server's behavior; `import` then warns about it."""

    def __post_init__(self) -> None:
        text = " ".join(self.text.split())
        force_setattr(self, "text", text if len(text) <= 200 else f"{text[:199]}…")


class Comment(Struct, frozen=True):
    """Comment in or directly above a command; `text` excludes the `#`."""

    text: str
    place: Place


class InvocationKind(StrEnum):
    """Way to start a server."""

    LAUNCH_SERVER = "launch_server"
    """``python -m sglang.launch_server``"""
    SERVE = "serve"
    """``sglang serve``"""
    SLIME = "slime"
    """``--sglang-…`` options of slime"""
    CONFIG = "config"
    """File for SGLang's own ``--config``"""
    DYNAMO = "dynamo"
    """``python -m dynamo.sglang``; Dynamo's own options are in `Invocation.dropped`"""
    SRT_SLURM = "srt_slurm"
    """Role of an srt-slurm recipe"""
    VLLM = "vllm"
    """``vllm serve``, until an import translates it"""
    ENGINE = "engine"
    """``sglang.Engine(…)``, ``ServerArgs(…)`` or verl's overrides: fields instead of flags"""


class ConfigFile(Struct, frozen=True):
    """File of SGLang's own ``--config``; `why` is the reason for an unknown `text`."""

    shown: str
    text: str | None = None
    why: str | None = None


class Invocation(Struct, frozen=True):
    """One server command: its arguments, environment and context.

    `words` contains only the server's arguments (for slime, without the ``--sglang-`` prefix).
    `program` contains everything before them. `env` is the environment that the file sets for the
    command. `extras` maps each of slime's own options (``--rollout-num-gpus-per-engine``) to its
    first value, or to itself if it has none. `name` names the container, service or object.
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
    config: ConfigFile | None = None
    """File of ``--config``, if set; its meaning depends on the version that reads it."""
    refused: tuple[Problem, ...] = ()
    """Values that the engine rejects before its parser runs."""
    hardware: str | None = None
    """GPUs that the file assigns to the server, in the format of `--hardware`, or None."""
    directory: str | None = None
    """Current directory, relative to the script's initial one; None if unchanged or unknown."""
    read_only: str | None = None
    """Reason why the file's format prevents in-place edits of its tokens; else None."""
    server_context: ServerContext | None = None
    """Role of the server in a deployment, and the setup of its pod; None if unknown."""
    added: tuple[Word, ...] = ()
    """Tokens that the platform appends. The engine gets them, but the file does not contain them.

    The place of each is the setting that makes the platform append it.
    """
    read_variables: frozenset[str] = frozenset()
    """Engine-like names of environment variables (`SGLANG_…`) that the file itself reads."""


class RouterCommand(Struct, frozen=True):
    """Command that starts a router in front of servers; `words` contains its arguments.

    `program` is its module or program; `name` is the name of its container or service.
    """

    program: str
    words: tuple[Word, ...]
    place: Place
    name: str | None = None


class Reading(Struct, frozen=True):
    """Server commands of a file in order, and the problems found."""

    invocations: tuple[Invocation, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Problems that did not prevent reading the file."""
    unread: tuple[Problem, ...] = ()
    """Parts of the file that could not be read; all other parts were read."""
    misread: tuple[Problem, ...] = ()
    """Text that the shell misreads, such as a placeholder or a pasted link."""
    routers: tuple[RouterCommand, ...] = ()

    def commands(self, source: str) -> tuple[Invocation, ...]:
        """Return the server commands, at least one; `source` names the input in errors.

        Raise InputError if nothing could be read, NothingFoundError if there is no command.
        """
        if self.invocations:
            return self.invocations
        if self.unread:
            raise InputError(self.unread)
        raise NothingFoundError(Problem(f"no SGLang server command in {source}"))


class ReadingBuilder:
    """Builder that collects the results of a reader part by part."""

    def __init__(self) -> None:
        self.invocations: list[Invocation] = []
        self.problems: list[Problem] = []
        self.unread: list[Problem] = []
        self.misread: list[Problem] = []
        self.routers: list[RouterCommand] = []

    @contextmanager
    def tolerant(self) -> Iterator[None]:
        """Catch an InputError inside the context and record it as an unread part."""
        try:
            yield
        except InputError as error:
            self.unread.extend(error.problems)

    def add(self, reading: Reading) -> None:
        self.invocations.extend(reading.invocations)
        self.problems.extend(reading.problems)
        self.unread.extend(reading.unread)
        self.misread.extend(reading.misread)
        self.routers.extend(reading.routers)

    def reading(self) -> Reading:
        return Reading(
            tuple(self.invocations),
            tuple(self.problems),
            tuple(self.unread),
            tuple(self.misread),
            tuple(self.routers),
        )


def recipe_name(stem: str, number: int | None = None) -> str:
    """Return a recipe name from a file's stem; `number` distinguishes the commands in one file."""
    name = re.sub(r"\W+", "_", stem).strip("_").lower() or "imported"
    return name if number is None else f"{name}_{number}"
