"""A rule, its row in the table, and its verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from speclaunch.checks.rules import FAMILIES
from speclaunch.checks.rules.finding import Fix, Severity
from speclaunch.checks.rules.pages import page
from speclaunch.core import Place
from speclaunch.engine import within

if TYPE_CHECKING:  # the table of rules is read where there is no plan
    from speclaunch.engine import Plan

__all__ = ["Fix", "Rule", "Severity", "Verdict", "row", "rule", "rule_across"]


class Verdict(Struct, frozen=True):
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
    others: tuple[Place, ...] = ()
    """Places beside those of `at`: in another role, in the pod, in a Service."""


Check = Callable[["Plan"], Iterator[Verdict]]
CheckAcross = Callable[[Sequence["Plan"]], Iterator[tuple["Plan", Verdict]]]
"""A check that compares deployments: each verdict with the plan that it is about."""
_OF_DEPLOYMENTS = frozenset(f"SPL{number}" for number in FAMILIES["deployments"].numbers)


def every_plan(_plan: Plan) -> bool:
    """For a rule that compares all of them."""
    return True


class _Deferred(Struct, frozen=True):
    """A check of a rule; its module is imported when the check is first called."""

    module: str
    code: str
    checks: dict[str, Any]

    def __call__(self, subject: Any) -> Any:
        if self.code not in self.checks:
            import_module(f"{__package__}.{self.module}")
        return self.checks[self.code](subject)


def no_verdict(_plan: Plan) -> Iterator[Verdict]:
    """The check of a rule that compares deployments: one plan alone has no verdict."""
    return iter(())


class Rule(Struct, frozen=True):
    """One rule: when its `check` runs. Its page says the rest.

    `algorithms`: effective algorithms that it is about; empty: any, also none. `versions`: the
    engine versions that it holds for, as a specifier set; empty: all.
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
    """Severities that its verdicts can have instead, each with when: `in 0.5.3`."""
    says: tuple[str, ...] = ()
    """How the engine's messages begin that it predicts; `{}` is what differs each time."""
    compares: Callable[[Plan], bool] = every_plan
    """True for the plans that `check_across` needs: its result is the same without the others."""

    @property
    def of_deployments(self) -> bool:
        """Whether it is about what stands around a server, and asked of nothing else."""
        return self.code in _OF_DEPLOYMENTS

    def holds_in(self, version: str) -> bool:
        """Whether it is asked about an engine version at all."""
        return within(version, self.versions)

    @property
    def summary(self) -> str:
        """What it finds, in one line: from its page."""
        return page(self.code).summary


CHECKS: dict[str, Any] = {}
"""The checks of the modules imported so far, by code: `Check` or `CheckAcross`."""
COMPARED: dict[str, Callable[[Plan], bool]] = {}
"""`Rule.compares` of those that compare deployments."""


def row(
    code: str,
    name: str,
    severity: Severity,
    module: str,
    *,
    versions: str = "",
    algorithms: Iterable[str] = (),
    also: Mapping[Severity, str] | None = None,
    says: Iterable[str] = (),
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
        tuple(says),
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
