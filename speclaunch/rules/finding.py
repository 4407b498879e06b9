"""What a rule found in a deployment, and what a report shows of it: quick to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from speclaunch.errors import Place
from speclaunch.record import record
from speclaunch.rules.pages import page


class Severity(StrEnum):
    """How sure and how bad: see the exit codes in docs/reference/command-line.md."""

    ERROR = "error"
    """The engine refuses, crashes, or serves wrong output, with certainty on the facts at hand."""
    WARNING = "warning"
    """Likely to fail, or it costs performance or safety."""
    INFO = "info"
    """What the engine changes by itself."""


@record
class Fix:
    """What to do: a sentence, and the edits that do it where there is one obvious way.

    `set` and `env` map names (the engine's current ones) to values; None takes one away. `safe`:
    the deployment still does what it was meant to do.
    """

    text: str
    set: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    safe: bool = False


@record
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


@record
class Unjudged:
    """A rule that had no verdict, because something it asks for is not known."""

    code: str
    rule: str
    reason: str


@record
class Judgement:
    """All findings on one deployment, and the rules that could not tell."""

    findings: tuple[Finding, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings for which a launch is refused."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)
