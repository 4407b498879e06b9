"""When nobody says the version: which other releases would take a deployment that the newest
refuses.

A release takes it that finds no error in it, but for those that every release finds that was asked.
What some release takes is no error: it is a warning, which names the releases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.rules.examine import Lookup, examine
from speclaunch.checks.rules.finding import Finding, Fix, Severity
from speclaunch.checks.rules.interface import Rule
from speclaunch.core import Place
from speclaunch.engine import Request, held_versions

_MOST_ASKED = 6
"""Releases that are asked before it is held that none takes it: those that refuse the fewest
words, the newest first, and the oldest."""

_Key = tuple[str, Place]
"""One error, in whatever words a release says it."""


class ReleaseChecker(Struct, frozen=True):
    """Checks one deployment in other releases."""

    request: Callable[[str], Request]
    lookup: Lookup
    rules: tuple[Rule, ...]

    def refused(self, version: str) -> frozenset[Place]:
        """The words that the parser of a release refuses: cheap, and it decides nearly always."""
        request = self.request(version)
        return frozenset(one.place or request.place for one in request.problems)

    def errors(self, version: str) -> frozenset[_Key]:
        """The errors of a deployment in a release."""
        found = examine(self.request(version), self.lookup, self.rules).judgement.findings
        refused = self.refused(version)  # of a fork's arguments lint only warns
        return _keys(found) | {_key(one) for one in found if one.place in refused}


def with_other_releases(
    findings: Sequence[Finding],
    others: Sequence[str],
    request: Callable[[str], Request],
    lookup: Lookup,
    rules: Iterable[Rule],
) -> tuple[Finding, ...]:
    """The findings of a deployment at the newest release; those errors that not all of the
    releases `others` (ascending) have are warnings. `request` is the deployment in a release."""
    errors = _keys(findings)
    if not errors or not others:
        return tuple(findings)
    with_errors = tuple(rule for rule in rules if Severity.ERROR in (rule.severity, *rule.also))
    taken = _taken(errors, others, ReleaseChecker(request, lookup, with_errors))
    if taken is None:
        return tuple(findings)
    always, first, last = taken
    held = held_versions()
    span = f"SGLang {last} takes" if first == last else f"SGLang {first} to {last} take"
    why = f"{span} it; it is refused from {held[held.index(last) + 1]} on"
    return tuple(
        _told(one, why) if one.severity is Severity.ERROR and _key(one) not in always else one
        for one in findings
    )


def _taken(
    errors: frozenset[_Key], others: Sequence[str], checker: ReleaseChecker
) -> tuple[frozenset[_Key], str, str] | None:
    """The errors that all releases have, and the first and the last release of the newest run of
    them that takes the rest; None where none does."""
    words = {version: checker.refused(version) for version in others}
    everywhere = frozenset.intersection(*words.values())
    fewest = [version for version in reversed(others) if words[version] == everywhere]
    asked: dict[str, frozenset[_Key]] = {}
    for version in dict.fromkeys((*fewest[: _MOST_ASKED - 1], *fewest[-1:])):
        asked[version] = checker.errors(version)
    if not asked:
        return None
    always = errors.intersection(*asked.values())
    if always == errors:
        return None
    last = next((version for version, found in asked.items() if found <= always), None)
    if last is None:
        return None
    first = last
    for version in reversed(others[: others.index(last)]):
        if words[version] != everywhere:
            break
        found = asked[version] if version in asked else checker.errors(version)
        if not found <= always:
            break
        first = version
    return always, first, last


def _keys(findings: Iterable[Finding]) -> frozenset[_Key]:
    return frozenset(_key(one) for one in findings if one.severity is Severity.ERROR)


def _key(finding: Finding) -> _Key:
    return finding.code, finding.place


def _told(finding: Finding, why: str) -> Finding:
    text = "name the engine version: in the recipe, the image's tag, speclaunch.toml, or --engine"
    fix = finding.fix
    return replace(
        finding,
        severity=Severity.WARNING,
        why=f"no version is named here, and {why}" + (f" ({finding.why})" if finding.why else ""),
        # on a release that takes it, even a safe fix may be what breaks it
        fix=Fix(text) if fix is None else replace(fix, text=f"{fix.text}; or {text}", safe=False),
    )
