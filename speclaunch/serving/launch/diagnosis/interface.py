"""What a diagnosis is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum, IntEnum, StrEnum, auto
from functools import partial
from types import MappingProxyType

from msgspec import Struct, field
from packaging.specifiers import SpecifierSet

from speclaunch.serving.launch.log.marks import LogMark, Phase


class Direction(StrEnum):
    """Which way to turn a setting."""

    RAISE = "raise"
    LOWER = "lower"


class Milestone(Struct, frozen=True):
    """Something that a start reached, with what the engine said of it in figures (GB, tokens)."""

    phase: Phase
    text: str
    """In plain words: `target weights loaded: LlamaForCausalLM`."""
    line_number: int
    numbers: Mapping[str, float] = {}


class Cause(Struct, frozen=True):
    """One entry of the catalogue of failures.

    `directions` says for each server argument (by the newest engine's name) which way to turn it.
    Where `memory` is False no setting of memory can help, and the ladder takes no rung.
    `remedy` has one step a line; `{mem_fraction_static}` in it stands for the flag of that
    argument. `remedy.steps` spells it for an engine version: show that, not the text itself.
    """

    name: str
    """Stable, in words with hyphens: `kv-pool-too-small`."""
    title: str
    meaning: str
    remedy: str
    memory: bool
    directions: Mapping[str, Direction] = {}
    versions: SpecifierSet = field(default_factory=SpecifierSet)
    """The releases that print it."""
    sources: tuple[str, ...] = ()


class CauseCandidate(Struct, frozen=True):
    """A cause that the log may show but does not prove."""

    cause: Cause
    line: str
    line_number: int
    reason: str
    """Why it is in doubt: `the engine continued after it`."""


class Diagnosis(Struct, frozen=True):
    """What a log says: how far the engine came, and what it died of.

    `cause` None: the log shows no failure that is known; `line` is then the engine's last error,
    if it has one.
    """

    phase: Phase
    """The last milestone that the log shows."""
    served: bool = False
    """Whether the engine was ready before."""
    cause: Cause | None = None
    line: str | None = None
    """The line of the log that proves it, as it stands there (secrets are the log's business)."""
    line_number: int | None = None
    numbers: Mapping[str, float] = {}
    """What the engine's message says in figures, e.g. `mem_fraction_static_above`: 0.912."""
    version: str | None = None
    """The engine version, where the log shows it."""
    engine: bool = True
    """Whether this is a log of SGLang at all."""
    stopped: bool = False
    """The engine was asked to stop (SIGTERM, Ctrl-C), and what follows is its end."""
    launches: int = 1
    """How many starts the log holds; only the last one is told of."""
    milestones: tuple[Milestone, ...] = ()
    settings: Mapping[str, float] = {}
    """Server arguments that the engine logged at its start, those that directions name."""
    cpu: bool = False
    """The engine runs on a CPU."""
    rule: str | None = None
    """The code of the lint rule that would have said so before the start."""
    rank: str | None = None
    """The rank that failed (`TP1`), where the engine has several."""
    notes: tuple[str, ...] = ()
    """What the engine warned of and survived, where it bears on memory or speed."""
    unclear: bool = False
    """The log shows a failure, but its lines contradict each other about the cause: `cause` is
    None and `candidates` has the causes. Lines of several processes in one log do that."""
    candidates: tuple[CauseCandidate, ...] = ()
    """Other causes that the log may show, most likely first."""

    @property
    def failed(self) -> bool:
        """Whether the log shows a failure, known or not."""
        return self.cause is not None or self.line is not None or self.unclear


# How a cause is recognised: a pattern, the kind of line it is looked for in, and the context.
#
# A pattern is matched at the beginning of what the engine said, never searched for in it: request
# texts, model names and messages that merely quote an error stay what they are.


class Where(Enum):
    """What kind of line a pattern is about."""

    EXCEPTION = auto()
    """The message of an exception that ended a process of the engine."""
    MESSAGE = auto()
    """A line that the engine logged."""
    OUTPUT = auto()
    """A line without the engine's header: argparse, the C++ runtime, the shell."""


class FailureLevel(IntEnum):
    """Of several errors the highest level is the cause, and of equals the first."""

    END = 0
    """The engine ends itself; nothing else is known."""
    AFTERMATH = 1
    """A process ended or a peer was lost: something else came before, if the log shows it."""
    UNKNOWN = 2
    """An exception that no signature knows."""
    CAUSE = 3


class Frame(Struct, frozen=True):
    """One frame of a traceback."""

    file: str
    """The file's name without its directory."""
    function: str
    path: str


class LogFailure(Struct, frozen=True):
    """An error in the log and all that is known of its circumstances."""

    number: int
    raw: str
    """The line as it stands in the log."""
    kind: str
    """The exception's class without its module; empty for other lines."""
    message: str
    rank: str
    phase: Phase = Phase.IMPORTS
    last: LogMark | None = None
    """The last milestone of its rank before it."""
    loads: int = 0
    """How many loads of weights had begun."""
    pooled_before_load: bool = False
    served: bool = False
    cpu: bool = False
    """The engine runs on the CPU: its pool lies in the machine's memory."""
    draft_in_pool: bool | None = None
    """The draft is paid from the pool. None where the version is not known."""
    head: str = ""
    """What the engine said in front of the traceback."""
    frames: tuple[Frame, ...] = ()
    code: str = ""
    """The source line that raised it, where the traceback shows it."""
    contested: bool = False
    """Its traceback holds another exception: one of the two is of another process."""
    chain: int = 0
    """Where its traceback begins: exceptions that followed from each other share it."""

    def within(self, *names: str) -> bool:
        """Whether the traceback went through a file or a function of one of these names."""
        return any(frame.file in names or frame.function in names for frame in self.frames)

    @property
    def ends_process(self) -> bool:
        """True if nothing catches the exception: the last message of a scheduler, a failed
        warm-up, or a traceback from the start of a process."""
        if "hit an exception" in self.head or self.head.startswith("Initialization failed"):
            return True
        return self.of_main_process

    @property
    def of_main_process(self) -> bool:
        """True if the traceback begins where the main process does."""
        if not self.frames:
            return False
        first = self.frames[0]
        return first.function == "<module>" or first.path.startswith("<frozen runpy>")

    @property
    def through_arguments(self) -> bool:
        """The traceback went through the examination of the engine's arguments."""
        return any(
            frame.file in ("server_args.py", "spec_info.py", "arg_parser.py")
            or "/arg_groups/" in frame.path
            for frame in self.frames
        )

    @property
    def at_arguments(self) -> bool:
        """It was raised while the engine examined its arguments, before anything was loaded."""
        early = self.phase in (Phase.IMPORTS, Phase.SCHEDULER)
        return self.through_arguments and (early or self.of_main_process)


Condition = Callable[[LogFailure], bool]


class Signature(Struct, frozen=True):
    """One way in which a cause shows itself.

    Named groups that hold a number become `Diagnosis.numbers`.
    """

    where: Where
    pattern: re.Pattern[str]
    level: FailureLevel = FailureLevel.CAUSE
    when: Condition | None = None
    rule: str | None = None


class KnownCause(Struct, frozen=True):
    """A cause with all its signatures: a row of the catalogue."""

    cause: Cause
    signatures: tuple[Signature, ...]


def known(
    *,
    name: str,
    title: str,
    meaning: str,
    remedy: str,
    signatures: tuple[Signature, ...],
    memory: bool = False,
    directions: Mapping[str, Direction] = MappingProxyType({}),
    versions: str = "",
    sources: tuple[str, ...] = (),
) -> KnownCause:
    """Return a row of the catalogue; the values are those of `Cause`."""
    turned, releases = dict(directions), SpecifierSet(versions)
    cause = Cause(name, title, meaning, remedy, memory, turned, releases, sources)
    return KnownCause(cause, signatures)


def signature(
    where: Where,
    pattern: str,
    when: Condition | None = None,
    *,
    level: FailureLevel = FailureLevel.CAUSE,
    rule: str | None = None,
) -> Signature:
    """Return a signature: what a line, or the message of an exception, begins with."""
    return Signature(where, re.compile(pattern), level, when, rule)


raised = partial(signature, Where.EXCEPTION)
logged = partial(signature, Where.MESSAGE)
printed = partial(signature, Where.OUTPUT)
