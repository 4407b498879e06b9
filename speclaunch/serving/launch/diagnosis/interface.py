"""Records of a diagnosis."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum, IntEnum, StrEnum, auto
from functools import partial
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from packaging.specifiers import SpecifierSet

from speclaunch.serving.launch.engine_log import LogMark, Phase

ABOVE = "mem_fraction_static_above"
"""Key in `Diagnosis.numbers` for the value that `mem_fraction_static` has to exceed."""


class Direction(StrEnum):
    """Direction in which to change a setting."""

    RAISE = "raise"
    LOWER = "lower"


class Milestone(Struct, frozen=True):
    """A stage that a start reached, with the engine's figures for it (GB, tokens)."""

    phase: Phase
    text: str
    """Plain text, for example `target weights loaded: LlamaForCausalLM`."""
    line_number: int
    numbers: Mapping[str, float] = {}


class Cause(Struct, frozen=True):
    """Cause of failure in the catalogue.

    `directions` maps each server argument (by the newest engine's name) to the direction in which
    to change it. If `memory` is False, no memory setting can help, and the ladder takes no rung.
    `remedy` has one step per line. Show it with `remedy_steps`, which replaces
    `{mem_fraction_static}` with that argument's flag in the engine's version.
    """

    name: str
    """Stable, hyphenated name, for example `kv-pool-too-small`."""
    title: str
    meaning: str
    remedy: str
    memory: bool
    directions: Mapping[str, Direction] = {}
    versions: SpecifierSet = field(default_factory=SpecifierSet)
    """Releases that print the error."""
    sources: tuple[str, ...] = ()


class CauseCandidate(Struct, frozen=True):
    """Cause that the log suggests but does not prove."""

    cause: Cause
    line: str
    line_number: int
    reason: str
    """Reason for the doubt, such as `an engine continued after it`."""


class Diagnosis(Struct, frozen=True):
    """Diagnosis from a log: progress of the engine, and the cause of its end.

    `cause` is None if the log shows no known failure. `line` is then the engine's last error, if
    any.
    """

    phase: Phase
    """Phase of the failure or, without one, the last phase in the log."""
    served: bool = False
    """True if the engine had become ready."""
    cause: Cause | None = None
    line: str | None = None
    """Unchanged log line that proves the cause; secrets are redacted in the log itself."""
    line_number: int | None = None
    numbers: Mapping[str, float] = {}
    """Figures in the engine's message, for example `ABOVE`: 0.912."""
    version: str | None = None
    """Explicit version, or the newest release that the log's wording allows; None if unknown."""
    engine: bool = True
    """False if the log is not from SGLang."""
    stopped: bool = False
    """True if the engine received a stop request (SIGTERM, Ctrl-C) and then ended."""
    launches: int = 1
    """Number of starts in the log; only the last is reported."""
    milestones: tuple[Milestone, ...] = ()
    settings: Mapping[str, float] = {}
    """Server arguments that the engine logged at its start and that a remedy may change."""
    arguments: Mapping[str, Any] = {}
    """Server arguments that the engine logged at its start; `UNREADABLE` for a value that is not a
    plain literal."""
    cpu: bool = False
    rule: str | None = None
    """Code of the lint rule that finds the cause before a start; None without such a rule."""
    rank: str | None = None
    """Rank that failed (`TP1`), if the engine has several."""
    notes: tuple[str, ...] = ()
    """Warnings about memory or speed that did not stop the engine."""
    unclear: bool = False
    """True if the log shows a failure, but its lines contradict each other about the cause, usually
    because several processes wrote them. `cause` is then None, and `candidates` has the causes."""
    candidates: tuple[CauseCandidate, ...] = ()
    """Other causes that the log may show, most likely first."""

    @property
    def failed(self) -> bool:
        """True if the log shows a failure, known or not."""
        return self.cause is not None or self.line is not None or self.unclear


# Recognition of a cause: a pattern, the kind of line to match, and the context.
#
# A pattern is matched at the beginning of the engine's message, never searched for in it. Request
# texts, model names and messages that merely quote an error therefore never match.


class Where(Enum):
    """Kind of line that a pattern matches."""

    EXCEPTION = auto()
    """Message of an exception that ended a process of the engine."""
    MESSAGE = auto()
    """Line that the engine logged."""
    OUTPUT = auto()
    """Line without the engine's header, from argparse, the C++ runtime or the shell."""


class FailureLevel(IntEnum):
    """Precedence of an error. The error with the highest level is the cause; among equals, the
    first."""

    END = 0
    """The engine ended itself for an unknown reason."""
    AFTERMATH = 1
    """A process ended or a peer was lost. An earlier error, if logged, is the cause."""
    UNKNOWN = 2
    """An exception without a signature."""
    CAUSE = 3


class Frame(Struct, frozen=True):
    """One frame of a traceback."""

    file: str
    """File name without its directory."""
    function: str
    path: str


class LogFailure(Struct, frozen=True):
    """An error in the log with its circumstances."""

    number: int
    raw: str
    kind: str
    """Class of the exception without its module; empty for other lines."""
    message: str
    rank: str
    phase: Phase = Phase.IMPORTS
    last: LogMark | None = None
    """Last milestone of the rank before the error; None if there was none."""
    loads: int = 0
    """Number of weight loads started before the error."""
    pooled_before_load: bool = False
    served: bool = False
    cpu: bool = False
    """True if the engine runs on the CPU, so its pool is in the machine's memory."""
    draft_in_pool: bool | None = None
    """True if the draft's memory comes out of the pool; None if the version is unknown."""
    head: str = ""
    """Engine's text before the traceback."""
    frames: tuple[Frame, ...] = ()
    code: str = ""
    """Source line that raised the exception; empty if the traceback does not show it."""
    contested: bool = False
    """True if the traceback contains two exceptions, one of them from another process."""
    chain: int = 0
    """Line number where the traceback begins; chained exceptions share it."""

    def within(self, *names: str) -> bool:
        """True if the traceback passed through a file or function with one of these names."""
        return any(frame.file in names or frame.function in names for frame in self.frames)

    @property
    def ends_process(self) -> bool:
        """True if nothing catches the exception: it ended a scheduler or the warm-up, or its
        traceback begins in the main process."""
        last = "hit an exception" in self.head or self.head.startswith("Initialization failed")
        return last or self.of_main_process

    @property
    def of_main_process(self) -> bool:
        if not self.frames:
            return False
        first = self.frames[0]
        return first.function == "<module>" or first.path.startswith("<frozen runpy>")

    @property
    def through_arguments(self) -> bool:
        """True if the traceback passed through the engine's checks of its arguments."""
        return any(
            frame.file in ("server_args.py", "spec_info.py", "arg_parser.py")
            or "/arg_groups/" in frame.path
            for frame in self.frames
        )

    @property
    def at_arguments(self) -> bool:
        """True if the error was raised while the engine checked its arguments, before it loaded
        anything."""
        early = self.phase in (Phase.IMPORTS, Phase.SCHEDULER)
        return self.through_arguments and (early or self.of_main_process)


Condition = Callable[[LogFailure], bool]


class Signature(Struct, frozen=True):
    """Log pattern that identifies a cause.

    Named groups that contain a number become `Diagnosis.numbers`.
    """

    where: Where
    pattern: re.Pattern[str]
    level: FailureLevel = FailureLevel.CAUSE
    when: Condition | None = None
    rule: str | None = None


class KnownCause(Struct, frozen=True):
    """Catalogue entry: a cause with all its signatures."""

    cause: Cause
    signatures: tuple[Signature, ...]


def known(
    *,
    name: str,
    title: str,
    meaning: str,
    remedy: str,
    signatures: tuple[Signature, ...],
    directions: Mapping[str, Direction] = MappingProxyType({}),
    versions: str = "",
    sources: tuple[str, ...] = (),
) -> KnownCause:
    """Return a catalogue entry with these signatures; the other parameters are those of `Cause`,
    whose `memory` is True if there are `directions`."""
    turned, releases = dict(directions), SpecifierSet(versions)
    cause = Cause(name, title, meaning, remedy, bool(turned), turned, releases, sources)
    return KnownCause(cause, signatures)


def lower(*arguments: str) -> dict[str, Direction]:
    """Return the directions that lower all these settings."""
    return dict.fromkeys(arguments, Direction.LOWER)


def signature(
    where: Where,
    pattern: str,
    when: Condition | None = None,
    *,
    level: FailureLevel = FailureLevel.CAUSE,
    rule: str | None = None,
) -> Signature:
    """Return a signature. `pattern` matches from the beginning of a line or an exception's
    message."""
    return Signature(where, re.compile(pattern), level, when, rule)


raised = partial(signature, Where.EXCEPTION)
logged = partial(signature, Where.MESSAGE)
printed = partial(signature, Where.OUTPUT)
