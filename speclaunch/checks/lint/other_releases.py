"""Find releases that accept a deployment without a version that the newest release rejects.

A release accepts a deployment if it has no errors except those of every checked release. An error
that some release lacks becomes a warning that names the releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.rules.examine import Lookup, check_request
from speclaunch.checks.rules.finding import Finding, Fix, Severity
from speclaunch.checks.rules.interface import Rule
from speclaunch.core import Place
from speclaunch.engine import Request, held_versions

_MOST_CHECKED = 6
"""Maximum number of releases checked before all are assumed to reject it: those that reject the
fewest arguments, newest first, and the oldest."""

_Key = tuple[str, Place]
"""Error without its message, which differs between releases."""


class ReleaseChecker(Struct, frozen=True):
    """Checker of one deployment in other releases."""

    request: Callable[[str], Request]
    lookup: Lookup
    rules: tuple[Rule, ...]

    def refused(self, version: str) -> frozenset[Place]:
        """Return the arguments that a release's parser rejects: cheap, and usually decisive."""
        request = self.request(version)
        return frozenset(problem.place or request.place for problem in request.problems)

    def errors(self, version: str) -> frozenset[_Key]:
        """Return the errors of a deployment in a release."""
        found = check_request(self.request(version), self.lookup, self.rules).results.findings
        refused = self.refused(version)  # arguments of a fork are only warnings in lint
        return _keys(found) | {_key(finding) for finding in found if finding.place in refused}


def with_other_releases(
    findings: Sequence[Finding],
    others: Sequence[str],
    request: Callable[[str], Request],
    lookup: Lookup,
    rules: Iterable[Rule],
) -> tuple[Finding, ...]:
    """Return the findings of a deployment at the newest release. Errors that some of the releases
    `others` (ascending) do not have become warnings. `request` returns the deployment in a release.
    """
    errors = _keys(findings)
    if not errors or not others:
        return tuple(findings)
    with_errors = tuple(rule for rule in rules if Severity.ERROR in (rule.severity, *rule.also))
    taken = _taken(errors, others, ReleaseChecker(request, lookup, with_errors))
    if taken is None:
        return tuple(findings)
    always, first, last = taken
    held = held_versions()
    span = f"SGLang {last} accepts" if first == last else f"SGLang {first} to {last} accept"
    why = f"{span} it; {held[held.index(last) + 1]} and later reject it"
    return tuple(
        _as_warning(finding, why)
        if finding.severity is Severity.ERROR and _key(finding) not in always
        else finding
        for finding in findings
    )


def _taken(
    errors: frozenset[_Key], others: Sequence[str], checker: ReleaseChecker
) -> tuple[frozenset[_Key], str, str] | None:
    """Return the errors of all releases, and the first and last release of the newest range that
    accepts the rest; None if there is none."""
    refused = cache(checker.refused)
    everywhere: frozenset[Place] = frozenset()
    if all(refused(version) for version in reversed(others)):
        everywhere = frozenset.intersection(*map(refused, others))
    fewest = (version for version in reversed(others) if refused(version) == everywhere)
    newest = list(islice(fewest, _MOST_CHECKED - 1))
    oldest = islice((version for version in others if refused(version) == everywhere), 1)
    checked = dict.fromkeys((*newest, *oldest))
    codes = {code for code, _ in errors}
    related = replace(checker, rules=tuple(rule for rule in checker.rules if rule.code in codes))
    always = errors.intersection(*map(related.errors, checked))
    if not checked or always == errors:
        return None
    found = cache(checker.errors)
    last = next((version for version in checked if found(version) <= always), None)
    if last is None:
        return None
    first = last
    for version in reversed(others[: others.index(last)]):
        if refused(version) != everywhere or not found(version) <= always:
            break
        first = version
    return always, first, last


def _keys(findings: Iterable[Finding]) -> frozenset[_Key]:
    return frozenset(_key(finding) for finding in findings if finding.severity is Severity.ERROR)


def _key(finding: Finding) -> _Key:
    return finding.code, finding.place


def _as_warning(finding: Finding, why: str) -> Finding:
    text = (
        "set the engine version in the recipe, the image's tag, speclaunch.toml, or with --engine"
    )
    fix = finding.fix
    return replace(
        finding,
        severity=Severity.WARNING,
        why=f"no SGLang version is set; {why}" + (f" ({finding.why})" if finding.why else ""),
        # a release that accepts it may fail with even a safe fix
        fix=Fix(text) if fix is None else replace(fix, text=f"{fix.text}; or {text}", safe=False),
    )
