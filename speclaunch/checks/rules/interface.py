"""Rules, their rows in the table, and their verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from speclaunch.checks.rules import FAMILIES
from speclaunch.checks.rules.finding import Fix, Severity
from speclaunch.checks.rules.pages import ADVISORY, page
from speclaunch.core import Place
from speclaunch.engine import within

if TYPE_CHECKING:  # the rule table is read without plans
    from speclaunch.engine import Plan

__all__ = ["Fix", "Rule", "Severity", "Verdict", "row", "rule", "rule_across"]


class Verdict(Struct, frozen=True):
    """A report of a rule about arguments or variables.

    The first name in `at` that the user set gives the place. `why` has the numbers. `severity` is
    set only if it differs from the rule's.
    """

    message: str
    at: tuple[str, ...] = ()
    why: str = ""
    fix: Fix | None = None
    severity: Severity | None = None
    place: Place | None = None
    """Set only if the verdict is not about an argument, such as a token that the parser refuses."""
    others: tuple[Place, ...] = ()
    """Places in addition to those of `at`: in a different role, the pod or a Service."""


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
    """A rule and when its `check` runs. Its page has the documentation.

    `algorithms`: effective algorithms that it applies to; empty: any, also none. `versions`: the
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
    """Other severities of its verdicts, each with its condition: `in 0.5.3`."""
    engine_messages: tuple[str, ...] = ()
    """Beginnings of the engine messages that it predicts; `{}` is the variable part."""
    compares: Callable[[Plan], bool] = every_plan
    """True for plans that `check_across` needs. Other plans do not change its result."""

    @property
    def can_be_error(self) -> bool:
        """True if it may report an error."""
        return Severity.ERROR in (self.severity, *self.also)

    @property
    def is_advisory(self) -> bool:
        """True for a known engine bug (`checks/advisory.py`)."""
        return self.code.startswith(ADVISORY)

    @property
    def of_deployments(self) -> bool:
        """True if it applies only to the server context."""
        return self.code in _OF_DEPLOYMENTS

    def holds_in(self, version: str) -> bool:
        """True if it applies to an engine version."""
        return within(version, self.versions)

    @property
    def summary(self) -> str:
        """One-line summary from its page."""
        return page(self.code).summary


CHECKS: dict[str, Any] = {}
"""Checks of the modules imported so far, by code: `Check` or `CheckAcross`."""
COMPARED: dict[str, Callable[[Plan], bool]] = {}
"""`Rule.compares` of the rules that compare deployments."""


def row(
    code: str,
    name: str,
    severity: Severity,
    module: str,
    *,
    versions: str = "",
    algorithms: Iterable[str] = (),
    also: Mapping[Severity, str] | None = None,
    engine_messages: Iterable[str] = (),
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
        tuple(engine_messages),
        _Deferred(module, code, COMPARED) if across else every_plan,
    )


def rule(code: str) -> Callable[[Check], Check]:
    """Register a function as the check of a rule of the table."""

    def register(check: Check) -> Check:
        CHECKS[code] = check
        return check

    return register


def rule_across(
    code: str, compares: Callable[[Plan], bool] = every_plan
) -> Callable[[CheckAcross], CheckAcross]:
    """Register a function as the check of a rule that compares deployments: see `Rule.compares`."""

    def register(check: CheckAcross) -> CheckAcross:
        CHECKS[code] = check
        COMPARED[code] = compares
        return check

    return register
