"""A rule, what it says of a plan, and the finding that a report shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from speclaunch.engine.versions import within
from speclaunch.errors import Place
from speclaunch.rules.pages import page

if TYPE_CHECKING:  # the table of rules is read where there is no plan
    from speclaunch.plan.plan import Plan


class Severity(StrEnum):
    """How sure and how bad: see the exit codes in docs/reference/command-line.md."""

    ERROR = "error"
    """The engine refuses, crashes, or serves wrong output, with certainty on the facts at hand."""
    WARNING = "warning"
    """Likely to fail, or it costs performance or safety."""
    INFO = "info"
    """What the engine changes by itself."""


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do: a sentence, and the edits that do it where there is one obvious way.

    `set` and `env` map names (the engine's current ones) to values; None takes one away. `safe`:
    the deployment still does what it was meant to do.
    """

    text: str
    set: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing a rule has to say, at the names of arguments or variables that it is about.

    The first name in `at` that the user wrote gives the place. `why` has the numbers. `severity`
    only where it differs from the rule's own.
    """

    message: str
    at: tuple[str, ...] = ()
    why: str = ""
    fix: Fix | None = None
    severity: Severity | None = None
    place: Place | None = None
    """Given only where no argument stands for it: a word that the parser refuses."""


Check = Callable[["Plan"], Iterator[Verdict]]
CheckAcross = Callable[[Sequence["Plan"]], Iterator[tuple["Plan", Verdict]]]
"""A check that needs several deployments: it says which of them each verdict is about."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: the conditions under which `check` is asked at all. Its page says the rest.

    `algorithms`: effective algorithms that it looks at; empty: any, also none. `versions`: the
    engine versions that it holds for, as a specifier set; empty: all.
    """

    code: str
    name: str
    severity: Severity
    check: Check
    versions: str = ""
    algorithms: frozenset[str] = frozenset()
    check_across: CheckAcross | None = None
    also: Mapping[Severity, str] = field(default_factory=dict)
    """Severities that its verdicts can have instead, each with when: `in 0.5.3`."""
    says: tuple[str, ...] = ()
    """How the engine's own messages begin that it foretells; `{}` is what differs each time."""

    def holds_in(self, version: str) -> bool:
        """Whether it is asked about an engine version at all."""
        return within(version, self.versions)

    @property
    def summary(self) -> str:
        """What it finds, in one line: from its page."""
        return page(self.code).summary


def rule(
    code: str,
    name: str,
    severity: Severity,
    check: Check,
    *,
    also: Mapping[Severity, str] | None = None,
    versions: str = "",
    algorithms: Iterable[str] = (),
    check_across: CheckAcross | None = None,
    says: Iterable[str] = (),
) -> Rule:
    """Define the rule of a module: `RULE = rule("SPL203", "spec-v2-without-effect", …)`."""
    return Rule(
        code,
        name,
        severity,
        check,
        versions,
        frozenset(algorithms),
        check_across,
        also or {},
        tuple(says),
    )


def defined_in(module: str) -> tuple[Rule, ...]:
    """The rules that a module defines; this imports it."""
    found = import_module(module)
    rules: tuple[Rule, ...] = found.RULES if hasattr(found, "RULES") else (found.RULE,)
    return rules


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's verdict on one deployment, with its place."""

    code: str
    rule: str
    severity: Severity
    message: str
    why: str
    fix: Fix | None
    place: Place
    engine: str

    @property
    def source(self) -> str:
        """Where we know it from: the first source of the page; ourselves, where it has none."""
        return page(self.code).source or "speclaunch"


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A rule that had no verdict, because something it asks for is not known."""

    code: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """All findings on one deployment, and the rules that could not tell."""

    findings: tuple[Finding, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings for which a launch is refused."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)
