"""What a diagnosis is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from packaging.specifiers import SpecifierSet

from speclaunch.launch.log.marks import Phase
from speclaunch.record import record


class Direction(StrEnum):
    """Which way to turn a setting."""

    RAISE = "raise"
    LOWER = "lower"


@record
class Milestone:
    """Something that a start reached, with what the engine said of it in figures (GB, tokens)."""

    phase: Phase
    text: str
    """In plain words: `target weights loaded: LlamaForCausalLM`."""
    line_number: int
    numbers: Mapping[str, float] = field(default_factory=dict)


@record
class Cause:
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
    directions: Mapping[str, Direction] = field(default_factory=dict)
    versions: SpecifierSet = field(default_factory=SpecifierSet)
    """The releases that print it."""
    sources: tuple[str, ...] = ()


@record
class Candidate:
    """A cause that the log may show but does not prove."""

    cause: Cause
    line: str
    line_number: int
    reason: str
    """Why it is in doubt: `the engine continued after it`."""


@record
class Diagnosis:
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
    numbers: Mapping[str, float] = field(default_factory=dict)
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
    settings: Mapping[str, float] = field(default_factory=dict)
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
    candidates: tuple[Candidate, ...] = ()
    """Other causes that the log may show, most likely first."""

    @property
    def failed(self) -> bool:
        """Whether the log shows a failure, known or not."""
        return self.cause is not None or self.line is not None or self.unclear
