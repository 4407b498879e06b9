"""Findings, verdicts and pages of rules, and the rules themselves.

A page has a title (`# SPL239 cpu-graph`), a one-sentence summary, and sections. The last section is
Sources. A page does not repeat the rule's fields (severity, algorithms, versions).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from speclaunch.checks.rules import ELSEWHERE, FAMILIES
from speclaunch.core import Place, docs_url, lazy, rule_pages_dir
from speclaunch.engine import within

if TYPE_CHECKING:
    from speclaunch.engine import Plan


ADVISORY = "SPA-"
"""Prefix of the IDs of advisories."""
_ADVISORIES = "speclaunch.checks.advisory"
"""Module of the advisories, imported only when an advisory's page is first read."""
_BULLET = lazy(r"^- ", re.MULTILINE)
_REMARK = lazy(r" \(.*\)$")


class Page(Struct, frozen=True):
    """A parsed rule page. `body` is everything below the summary."""

    title: str
    summary: str
    body: str

    @property
    def sources(self) -> tuple[str, ...]:
        _, _, listed = self.body.partition("## Sources\n")
        return tuple(" ".join(bullet.split()) for bullet in _BULLET.split(listed)[1:])

    @property
    def source(self) -> str:
        """First source, without its remark in parentheses; empty if there is none."""
        return _REMARK.sub("", self.sources[0]).removesuffix(".") if self.sources else ""


@cache
def page(code: str) -> Page:
    """Return the page of a rule or advisory. Raises FileNotFoundError."""
    if code.startswith(ADVISORY):
        return parsed(import_module(_ADVISORIES).page_of(code))
    return parsed((rule_pages_dir() / f"{code}.md").read_text(encoding="utf-8"))


def page_url(code: str) -> str | None:
    """Return the URL of a rule's or advisory's page; None if the docs are not published."""
    base = docs_url()
    folder = "advisories" if code.startswith(ADVISORY) else "rules"
    return None if base is None else f"{base}{folder}/{code}/"


def parsed(text: str) -> Page:
    """Parse the text of a page: title, summary and body, separated by blank lines."""
    title, summary, body = text.split("\n\n", 2)
    return Page(title.removeprefix("# "), summary.removesuffix("."), body)


class Severity(StrEnum):
    """Severity of a finding. It affects the exit code (docs/reference/command-line.md)."""

    ERROR = "error"
    """The engine refuses the deployment, crashes, or serves wrong output; certain given the
    available facts."""
    WARNING = "warning"
    """The deployment is likely to fail, to be slow or to be unsafe."""
    INFO = "info"
    """The engine changes a value on its own."""


class Applicability(StrEnum):
    """Safety of a fix, which decides the option that applies it."""

    SAFE = "safe"
    """`--fix` applies it: the deployment still does what was intended."""
    UNSAFE = "unsafe"
    """`--unsafe-fixes` applies it: the deployment's behavior changes."""


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
        """Summary of the edits: `set tp_size to 8, removed page_size`."""
        changes = [f"renamed {self.rename[0]} to {self.rename[1]}"] if self.rename else []
        for name, value in (*self.set.items(), *self.env.items()):
            changes.append(f"removed {name}" if value is None else f"set {name} to {value}")
        return ", ".join(changes)

    @property
    def applicability(self) -> Applicability | None:
        """Safety of the edits; None if the fix has no edits."""
        if not (self.set or self.env or self.rename):
            return None
        return Applicability.SAFE if self.safe else Applicability.UNSAFE


class DeploymentPlace(Struct, frozen=True):
    """A deployment in a file: its name, and the place of its command (for a recipe: of the file).

    Containers that share a command through a YAML alias differ only in their names.
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
    """Other places that the finding is about, such as those of conflicting arguments."""
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
        """First source on the rule's page, else `speclaunch`."""
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
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    @property
    def blamed(self) -> frozenset[Place]:
        return frozenset(place for error in self.errors for place in (error.place, *error.others))


def in_order(finding: Finding) -> tuple[str, int, int, str]:
    """Return the sort key of a finding: its position, then its code."""
    return (*finding.place.position, finding.code)


__all__ = ["Fix", "Rule", "Severity", "Verdict", "refused", "row", "rule", "rule_across"]


class Verdict(Struct, frozen=True):
    """A rule's report about arguments or variables.

    The first name in `at` that the user set decides the place. `why` gives the reason. `severity`
    is set only if it differs from the rule's.
    """

    message: str
    at: tuple[str, ...] = ()
    why: str = ""
    fix: Fix | None = None
    severity: Severity | None = None
    place: Place | None = None
    """Place, if the verdict is about something other than an argument, such as a refused token."""
    others: tuple[Place, ...] = ()
    """Places in addition to those of `at`: in a different role, the pod or a Service."""


def refused(message: str, engine_message: str, at: tuple[str, ...], fix: Fix) -> Verdict:
    """Return a verdict about the arguments `at`, which the engine refuses with `engine_message`."""
    return Verdict(message, at, f"the engine refuses: {engine_message}", fix)


Check = Callable[["Plan"], Iterator[Verdict]]
CheckAcross = Callable[[Sequence["Plan"]], Iterator[tuple["Plan", Verdict]]]
"""A check that compares deployments; it yields each verdict with its plan."""
_OF_DEPLOYMENTS = frozenset(f"SPL{number}" for number in FAMILIES["deployments"].numbers)


def every_plan(_plan: Plan) -> bool:
    """Return True: the rule compares all plans."""
    return True


class _Deferred(Struct, frozen=True):
    """A rule's check; its module is imported when the check is first called."""

    module: str
    code: str
    checks: dict[str, Any]

    def __call__(self, subject: Any) -> Any:
        if self.code not in self.checks:
            import_module(f"{__package__}.{self.module}")
        return self.checks[self.code](subject)


def no_verdict(_plan: Plan) -> Iterator[Verdict]:
    """Return no verdicts: a rule that compares deployments has none about a single plan."""
    return iter(())


class Rule(Struct, frozen=True):
    """A rule, and the conditions for its `check`. Its page documents it.

    `algorithms`: effective algorithms that it applies to; empty: any or none. `versions`: the
    engine versions that it applies to, as a specifier set; empty: all.
    """

    code: str
    name: str
    severity: Severity
    module: str
    check: Check
    versions: str = ""
    algorithms: frozenset[str] = frozenset()
    check_across: CheckAcross | None = None
    also: Mapping[Severity, str] = {}
    """Other severities of its verdicts, each with its condition, such as `in 0.5.3`."""
    compares: Callable[[Plan], bool] = every_plan
    """True for plans that `check_across` needs. Other plans do not change its result."""

    @property
    def can_be_error(self) -> bool:
        return Severity.ERROR in (self.severity, *self.also)

    @property
    def is_advisory(self) -> bool:
        return self.code.startswith(ADVISORY)

    @property
    def family(self) -> str:
        return ELSEWHERE.get(self.code) or next(
            name
            for name, family in FAMILIES.items()
            if self.module in family.modules and int(self.code[3:]) in family.numbers
        )

    @property
    def of_deployments(self) -> bool:
        """True if the rule checks the server context: pod, Service, router."""
        return self.code in _OF_DEPLOYMENTS

    def holds_in(self, version: str) -> bool:
        return within(version, self.versions)

    @property
    def summary(self) -> str:
        return page(self.code).summary


CHECKS: dict[str, Any] = {}
"""Checks of the modules imported so far, by code: `Check` or `CheckAcross`."""
COMPARED: dict[str, Callable[[Plan], bool]] = {}
"""`Rule.compares` of the imported rules that compare deployments, by code."""


def row(
    code: str,
    name: str,
    severity: Severity,
    module: str,
    *,
    versions: str = "",
    algorithms: Iterable[str] = (),
    also: Mapping[Severity, str] | None = None,
    across: bool = False,
) -> Rule:
    """Return a rule of the table, with a check that imports its module when first called."""
    check = _Deferred(module, code, CHECKS)
    return Rule(
        code,
        name,
        severity,
        module,
        no_verdict if across else check,
        versions,
        frozenset(algorithms),
        check if across else None,
        also or {},
        _Deferred(module, code, COMPARED) if across else every_plan,
    )


def rule(code: str) -> Callable[[Check], Check]:
    """Return a decorator that registers a function as the check of the table's rule `code`."""

    def register(check: Check) -> Check:
        CHECKS[code] = check
        return check

    return register


def rule_across(
    code: str, compares: Callable[[Plan], bool] = every_plan
) -> Callable[[CheckAcross], CheckAcross]:
    """Return a decorator like that of `rule`, for a check that compares deployments.

    `compares`: see `Rule`.
    """

    def register(check: CheckAcross) -> CheckAcross:
        CHECKS[code] = check
        COMPARED[code] = compares
        return check

    return register
