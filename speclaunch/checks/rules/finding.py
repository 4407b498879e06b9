"""Findings of rules and their severities, fixes and places. Quick to import."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from speclaunch.checks.rules.pages import ADVISORY, page, page_url
from speclaunch.core import Place


class Severity(StrEnum):
    """Severity of a finding: see the exit codes in docs/reference/command-line.md."""

    ERROR = "error"
    """The engine refuses, crashes, or serves wrong output: certain by the available facts."""
    WARNING = "warning"
    """Likely to fail, or it costs performance or safety."""
    INFO = "info"
    """Changes that the engine makes on its own."""


class Applicability(StrEnum):
    """Safety of a fix, which decides the option that applies it."""

    SAFE = "safe"
    """The deployment still does what was intended: `--fix`."""
    UNSAFE = "unsafe"
    """The deployment's behavior changes: `--unsafe-fixes`."""


class Fix(Struct, frozen=True):
    """A remedy: a sentence, and the edits if there is one obvious way.

    `set` and `env` map names (the engine's current names) to values; None removes the name.
    `rename` is the name in the file and the intended name, both without leading dashes. `safe`: the
    deployment still does what was intended.
    """

    text: str
    set: Mapping[str, Any] = {}
    env: Mapping[str, str | None] = {}
    safe: bool = False
    rename: tuple[str, str] | None = None

    @property
    def done(self) -> str:
        """Summary of its edits: `set tp_size to 8, removed page_size`."""
        changes = [f"renamed {self.rename[0]} to {self.rename[1]}"] if self.rename else []
        for name, value in (*self.set.items(), *self.env.items()):
            changes.append(f"removed {name}" if value is None else f"set {name} to {value}")
        return ", ".join(changes)

    @property
    def applicability(self) -> Applicability | None:
        """The `lint` option that applies it; None if it has no edits."""
        if not (self.set or self.env or self.rename):
            return None
        return Applicability.SAFE if self.safe else Applicability.UNSAFE


class DeploymentPlace(Struct, frozen=True):
    """A deployment of a file: the place of its command (of a recipe: its file), and its name.

    Containers that share a command by an alias differ only in their names.
    """

    place: Place
    name: str


class Finding(Struct, frozen=True):
    """A rule's verdict on a deployment, with its place."""

    code: str
    rule: str
    severity: Severity
    message: str
    why: str
    fix: Fix | None
    place: Place
    engine: str
    others: tuple[Place, ...] = ()
    """Places of the arguments that conflict with the first."""
    deployments: tuple[DeploymentPlace, ...] = ()
    """Affected deployments: several if they share the cause."""
    arguments: Mapping[str, str] = {}
    """Arguments and variables by the engine's current names, with the user's values; empty if the
    user set none."""

    @property
    def is_advisory(self) -> bool:
        """True for a known engine bug, False for a verdict of a rule."""
        return self.code.startswith(ADVISORY)

    @property
    def is_minor_bug(self) -> bool:
        """True for an advisory of info severity: see `Advisory.severity`."""
        return self.is_advisory and self.severity is Severity.INFO

    @property
    def url(self) -> str | None:
        """URL of the rule's page; None if the documentation is not published."""
        return page_url(self.code)

    @property
    def source(self) -> str:
        """First source of the rule's page, else speclaunch."""
        return page(self.code).source or "speclaunch"


class SkippedRule(Struct, frozen=True):
    """A rule without a verdict, because a value that it needs is unknown."""

    code: str
    rule: str
    reason: str


class RuleResults(Struct, frozen=True):
    """All findings on one deployment, and the rules without a verdict."""

    findings: tuple[Finding, ...] = ()
    skipped: tuple[SkippedRule, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that prevent a launch."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @property
    def blamed(self) -> frozenset[Place]:
        """All places of errors."""
        return frozenset(place for error in self.errors for place in (error.place, *error.others))


def in_order(finding: Finding) -> tuple[str, int, int, str]:
    """Return the sort key of a finding."""
    return (*finding.place.position, finding.code)
