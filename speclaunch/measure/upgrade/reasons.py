"""Reasons against moving a deployment to another release, and the verdict that follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from speclaunch.checks import Advisory, Severity, all_advisories
from speclaunch.core import Problem
from speclaunch.engine import (
    UNKNOWN_HARDWARE,
    ArgumentOutcome,
    Fit,
    UnknownValueError,
    is_idle,
)
from speclaunch.measure.advice.plan_requests import PlanComparison
from speclaunch.measure.advice.planned_deployment import PlannedDeployment

_FEWER_TOKENS = 0.99
"""Ratio of the new to the old KV cache capacity below which memory counts as changed."""


class UpgradeVerdict(StrEnum):
    """Answer to whether a deployment can move."""

    SAFE = "safe"
    """No difference was found, and nothing is unknown."""
    DIFFERS = "differs"
    """The deployment serves, with the listed differences."""
    NOT_SAFE = "not safe"
    """The deployment does not serve, or serves worse."""
    UNKNOWN = "unknown"
    """A missing fact may hide a difference."""


class Aspect(StrEnum):
    """The subject of a reason."""

    COMMAND = "command"
    REFUSAL = "refusal"
    VALUE = "value"
    MEMORY = "memory"
    ADVISORY = "advisory"
    START = "start"
    OUTPUT = "output"
    ACCEPTANCE = "acceptance"
    CONTRACT = "contract"
    FACTS = "facts"


class UpgradeReason(Struct, frozen=True, forbid_unknown_fields=True):
    """A reason against `safe`. `name`: argument, rule or advisory that it is about."""

    aspect: Aspect
    verdict: UpgradeVerdict
    text: str
    name: str = ""


_ORDER = (UpgradeVerdict.NOT_SAFE, UpgradeVerdict.DIFFERS, UpgradeVerdict.UNKNOWN)


def verdict_of(reasons: Iterable[UpgradeReason]) -> UpgradeVerdict:
    """Return the worst verdict of the reasons; `safe` without reasons."""
    found = {reason.verdict for reason in reasons}
    return next((verdict for verdict in _ORDER if verdict in found), UpgradeVerdict.SAFE)


def blocked(problems: Iterable[Problem]) -> Iterator[UpgradeReason]:
    """Yield the reasons why a command cannot be migrated."""
    for problem in problems:
        yield UpgradeReason(Aspect.COMMAND, UpgradeVerdict.NOT_SAFE, problem.message)


def reasons_of(found: PlanComparison) -> Iterator[UpgradeReason]:
    """Yield the reasons found by comparing the two plans."""
    yield from _refusals(found)
    yield from _values(found)
    yield from _memory(found)
    _, introduced, unknown = advisories_across(found)
    for advisory in introduced:
        is_serious = advisory.severity in (Severity.ERROR, Severity.WARNING)
        verdict = UpgradeVerdict.NOT_SAFE if is_serious else UpgradeVerdict.DIFFERS
        text = f"introduces {advisory.id}: {advisory.summary}"
        yield UpgradeReason(Aspect.ADVISORY, verdict, text, advisory.id)
    if found.before.version == found.after.version:
        return  # nothing that is unknown can differ
    for advisory, why in unknown:
        text = f"{advisory.id} may affect it: {why}"
        yield UpgradeReason(Aspect.ADVISORY, UpgradeVerdict.UNKNOWN, text, advisory.id)
    yield from _facts(found)


def _refusals(found: PlanComparison) -> Iterator[UpgradeReason]:
    gained = {id(finding) for finding in found.gained}
    for finding in found.after.findings:
        if finding.is_advisory or finding.severity is Severity.INFO:
            continue
        is_new = id(finding) in gained
        if finding.severity is Severity.ERROR:
            text = finding.message if is_new else f"{finding.message} (as before)"
            yield UpgradeReason(Aspect.REFUSAL, UpgradeVerdict.NOT_SAFE, text, finding.code)
        elif is_new:
            yield UpgradeReason(
                Aspect.REFUSAL, UpgradeVerdict.DIFFERS, finding.message, finding.code
            )
    check = found.after.engine_check
    refused = any(reason.severity is Severity.ERROR for reason in found.after.findings)
    if check is not None and check.accepted is False and not refused:
        yield UpgradeReason(Aspect.REFUSAL, UpgradeVerdict.NOT_SAFE, check.why)


def _values(found: PlanComparison) -> Iterator[UpgradeReason]:
    for difference in found.telling:
        rows = (difference.before, difference.after)
        if any(row is not None and row.outcome is ArgumentOutcome.UNKNOWN for row in rows):
            continue
        before, after = ("absent" if row is None else shown(row.effective) for row in rows)
        why = difference.after.why if difference.after is not None else "no such argument"
        text = f"{difference.name}: {before} → {after}" + (f" ({why})" if why else "")
        yield UpgradeReason(Aspect.VALUE, UpgradeVerdict.DIFFERS, text, difference.name)


def shown(value: object) -> str:
    """Return a value as text of at most 60 characters."""
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _unknown_values(found: PlanComparison) -> Iterator[str]:
    """Yield the arguments whose effective value is unknown in a plan."""
    for planned in (found.before, found.after):
        for row in planned.rows:
            if row.outcome is ArgumentOutcome.UNKNOWN and not is_idle(planned.plan, row.name):
                yield row.name


def _memory(found: PlanComparison) -> Iterator[UpgradeReason]:
    before, after = found.before.budget, found.after.budget
    if after.fit is Fit.FAILS:
        as_before = " (as before)" if before.fit is Fit.FAILS else ""
        why = f": {after.why}" if after.why else ""
        yield UpgradeReason(Aspect.MEMORY, UpgradeVerdict.NOT_SAFE, f"does not fit{as_before}{why}")
    elif after.fit is not before.fit and after.fit is Fit.TIGHT:
        yield UpgradeReason(Aspect.MEMORY, UpgradeVerdict.DIFFERS, f"fits → {after.fit.value}")
    elif after.fit is Fit.UNKNOWN and found.before.version != found.after.version:
        yield UpgradeReason(Aspect.MEMORY, UpgradeVerdict.UNKNOWN, f"memory unknown: {after.why}")
    if before.tokens and after.tokens and after.tokens < before.tokens * _FEWER_TOKENS:
        text = f"tokens in the KV cache: {before.tokens:,} → {after.tokens:,}"
        yield UpgradeReason(Aspect.MEMORY, UpgradeVerdict.DIFFERS, text)


def _facts(found: PlanComparison) -> Iterator[UpgradeReason]:
    unknown = (*found.before.plan.facts.unknown, *found.after.plan.facts.unknown)
    if found.after.plan.facts.hardware is None:
        text = "the hardware is unknown: set --hardware, for example h100:8"
        yield UpgradeReason(Aspect.FACTS, UpgradeVerdict.UNKNOWN, text, UNKNOWN_HARDWARE)
    for fact in dict.fromkeys(unknown):
        help_ = f" ({fact.help})" if fact.help else ""
        text = f"{fact.what}: {fact.why}{help_}"
        yield UpgradeReason(Aspect.FACTS, UpgradeVerdict.UNKNOWN, text, fact.what)
    for name in dict.fromkeys(_unknown_values(found)):
        text = f"{name} depends on a missing fact"
        yield UpgradeReason(Aspect.VALUE, UpgradeVerdict.UNKNOWN, text, name)
    before = {rule.code for rule in found.before.skipped}
    new = {rule.code: rule.reason for rule in found.after.skipped if rule.code not in before}
    for code, why in new.items():
        text = f"{code} was not checked: {why}"
        yield UpgradeReason(Aspect.REFUSAL, UpgradeVerdict.UNKNOWN, text, code)


Undecided = tuple[Advisory, str]
"""An advisory that may affect a plan, and the missing fact."""


def _advisories_of(planned: PlannedDeployment) -> tuple[list[Advisory], list[Undecided]]:
    """Return the advisories that affect a plan, and those that depend on a missing fact."""
    found: list[Advisory] = []
    undecided: list[Undecided] = []
    for advisory in all_advisories():
        try:
            if advisory.applies(planned.plan):
                found.append(advisory)
        except UnknownValueError as error:
            undecided.append((advisory, str(error)))
    return found, undecided


def advisories_across(
    found: PlanComparison,
) -> tuple[list[Advisory], list[Advisory], list[Undecided]]:
    """Return the advisories that a change of release fixes and introduces.

    The third list has advisories that the change may introduce, with the missing fact.
    """
    before, unsure_before = _advisories_of(found.before)
    after, unsure_after = _advisories_of(found.after)
    old = {advisory.id for advisory in before}
    new = {advisory.id for advisory in after}
    maybe = old | {advisory.id for advisory, _ in unsure_before}
    return (
        [advisory for advisory in before if advisory.id not in new],
        [advisory for advisory in after if advisory.id not in old],
        [entry for entry in unsure_after if entry[0].id not in maybe],
    )
