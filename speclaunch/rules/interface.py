"""A rule, and what it says of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING

from speclaunch.engine.versions import within
from speclaunch.errors import Place
from speclaunch.record import record
from speclaunch.rules import FAMILIES
from speclaunch.rules.finding import Fix, Severity
from speclaunch.rules.pages import page

if TYPE_CHECKING:  # the table of rules is read where there is no plan
    from speclaunch.plan.plan import Plan

__all__ = ["Fix", "Rule", "Severity", "Verdict", "defined_in", "rule"]


@record
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
    others: tuple[Place, ...] = ()
    """Places beside those of `at`: in another role, in the pod, in a Service."""


Check = Callable[["Plan"], Iterator[Verdict]]
CheckAcross = Callable[[Sequence["Plan"]], Iterator[tuple["Plan", Verdict]]]
"""A check that needs several deployments: it says which of them each verdict is about."""


_OF_DEPLOYMENTS = frozenset(f"SPL{number}" for number in FAMILIES["deployments"])


def every_plan(_plan: Plan) -> bool:
    """For a rule that compares all of them."""
    return True


@record
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
    compares: Callable[[Plan], bool] = every_plan
    """Whether `check_across` looks at a plan: what it says is the same without all others. A rule
    that looks across has nothing to say of one plan, and its `check` is not asked."""

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
    compares: Callable[[Plan], bool] = every_plan,
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
        compares,
    )


def defined_in(module: str) -> tuple[Rule, ...]:
    """The rules that a module defines; this imports it."""
    found = import_module(module)
    rules: tuple[Rule, ...] = found.RULES if hasattr(found, "RULES") else (found.RULE,)
    return rules
