"""What a rule found in a deployment, and what a report shows of it: quick to import."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from speclaunch.checks.rules.pages import page, page_url
from speclaunch.core import Place


class Severity(StrEnum):
    """How sure and how bad: see the exit codes in docs/reference/command-line.md."""

    ERROR = "error"
    """The engine refuses, crashes, or serves wrong output, with certainty on the facts at hand."""
    WARNING = "warning"
    """Likely to fail, or it costs performance or safety."""
    INFO = "info"
    """What the engine changes by itself."""


class Applicability(StrEnum):
    """Which fixes may be applied without a look at them."""

    SAFE = "safe"
    """The deployment still does what it was meant to do: `--fix`."""
    UNSAFE = "unsafe"
    """It does something else than before: `--unsafe-fixes`."""


class Fix(Struct, frozen=True):
    """What to do: a sentence, and the edits that do it where there is one obvious way.

    `set` and `env` map names (the engine's current ones) to values; None takes one away. `rename`
    is a name as it is written where it was found, and the one that is meant, both without dashes
    before them. `safe`: the deployment still does what it was meant to do.
    """

    text: str
    set: Mapping[str, Any] = {}
    env: Mapping[str, str | None] = {}
    safe: bool = False
    rename: tuple[str, str] | None = None

    @property
    def done(self) -> str:
        """What its edits do: `set tp_size to 8, removed page_size`."""
        said = [f"renamed {self.rename[0]} to {self.rename[1]}"] if self.rename else []
        for name, value in (*self.set.items(), *self.env.items()):
            said.append(f"removed {name}" if value is None else f"set {name} to {value}")
        return ", ".join(said)

    @property
    def applicability(self) -> Applicability | None:
        """Whether `lint` can apply it, and with which option; None: there are no edits."""
        if not (self.set or self.env or self.rename):
            return None
        return Applicability.SAFE if self.safe else Applicability.UNSAFE


class DeploymentPlace(Struct, frozen=True):
    """A deployment of a file: where its command stands (of a recipe: its file), and its name.

    Containers that share a command by an alias differ in their names alone.
    """

    place: Place
    name: str


class Finding(Struct, frozen=True):
    """A rule's verdict on one deployment, with its place."""

    code: str
    rule: str
    severity: Severity
    message: str
    why: str
    fix: Fix | None
    place: Place
    engine: str
    others: tuple[Place, ...] = ()
    """Where the other arguments stand that it is about: those that conflict with the first."""
    deployments: tuple[DeploymentPlace, ...] = ()
    """Those that it is about: several where they share what is wrong."""
    arguments: Mapping[str, str] = {}
    """The arguments and variables that it is about, by the engine's current names, with the values
    that the user set; empty where the user set none."""

    @property
    def url(self) -> str | None:
        """Its rule's page in the documentation; None as long as that is not published."""
        return page_url(self.code)

    @property
    def source(self) -> str:
        """Where we know it from: the first source of the page; ourselves, where it has none."""
        return page(self.code).source or "speclaunch"


class Unjudged(Struct, frozen=True):
    """A rule that had no verdict, because something it asks for is not known."""

    code: str
    rule: str
    reason: str


class Judgement(Struct, frozen=True):
    """All findings on one deployment, and the rules that could not tell."""

    findings: tuple[Finding, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings for which a launch is refused."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @property
    def blamed(self) -> frozenset[Place]:
        """All places that errors are about."""
        return frozenset(place for one in self.errors for place in (one.place, *one.others))


def in_order(finding: Finding) -> tuple[str, int, int, str]:
    """What findings are sorted by."""
    return (*finding.place.position, finding.code)
