"""Findings that the engine check adds to those of the rules: SPL090."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice

from msgspec.structs import replace

from speclaunch.checks.engine_check.opinions import Opinion, ReleaseRefusal
from speclaunch.checks.rules.examine import Lookup, check_plan, secrets_of
from speclaunch.checks.rules.interface import (
    DeploymentPlace,
    Finding,
    Fix,
    Rule,
    RuleResults,
    Severity,
    SkippedRule,
)
from speclaunch.checks.rules.registry import REFUSES
from speclaunch.core import Place, Redactor
from speclaunch.engine import Plan, Request, held_versions, resolve

_OF_THE_PARSER = frozenset({"SPL001", "SPL002", "SPL003"})
"""Rules that predict a parser error, which an engine check must confirm. Errors predicted by
other rules may occur after parsing."""
_PARSER = "SystemExit"


def engine_findings(
    opinion: Opinion, plan: Plan, findings: Sequence[Finding], *, is_named: bool = True
) -> RuleResults:
    """Return the findings that the engine check of a plan adds to the `findings` of the rules.

    A refusal adds nothing if an error about the same arguments explains it. `is_named`: True if the
    version was named for this deployment.
    """
    refusal = opinion.refusal
    if refusal is not None:
        if any(_explains(finding, refusal, plan.request) for finding in findings):
            return RuleResults()
        return RuleResults((_refused(opinion.release, refusal, plan.request, is_named=is_named),))
    if not opinion.accepted:
        return RuleResults((), (SkippedRule(REFUSES.code, REFUSES.name, opinion.why),))
    return RuleResults(tuple(_contradicted(opinion.release, plan.request, findings)))


def exactness_note(release: str) -> str:
    """Return the note that an engine check of `release` made a result exact."""
    return f"exact: engine check of SGLang {release}"


def _explains(finding: Finding, refusal: ReleaseRefusal, request: Request) -> bool:
    """True if an error is about an argument that the engine rejects."""
    if finding.severity is not Severity.ERROR:
        return False
    about = {finding.place, *finding.others}
    if refusal.units:
        return not about.isdisjoint(unit.place for unit in refusal.units)
    return request.place in about or _model(request) in about


def _refused(release: str, refusal: ReleaseRefusal, request: Request, *, is_named: bool) -> Finding:
    written, named = (
        list(dict.fromkeys(_written(unit.name, unit.written, request) for unit in units))
        for units in (refusal.units, refusal.named)
    )
    places = [unit.place for unit in refusal.units] or [_model(request)]
    places += [unit.place for unit in refusal.named]
    machines = " and ".join(refusal.machines)
    where = "its parser" if refusal.kind == _PARSER else f"{refusal.kind} at {refusal.place}"
    why = [] if is_named else ["no SGLang version is set; the newest release rejects it"]
    line = "" if refusal.line.startswith("raise ") else refusal.line  # its message is reported
    why.append(f"{where} on {machines}{f', `{line}`' if line else ''}")
    if len(written) > 1:
        why.append(f"only the combination of {_listed(written, 'and')} is refused")
    if named:
        them = "it" if len(named) == 1 else "them"
        why.append(f"the message names {_listed(named, 'and')}, but removing {them} does not help")
    why += refusal.doubts or [exactness_note(release)]
    remedy = "serve the model with another release, or on other hardware"
    fix = Fix(f"change or remove {_listed(written, 'or')}" if written else remedy)
    return _finding(
        Severity.ERROR if is_named and not refusal.doubts else Severity.WARNING,
        f"SGLang {release} refuses this: {refusal.words}",
        "; ".join(why),
        fix,
        places,
        request,
    )


def _contradicted(release: str, request: Request, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield a finding for each rule error about an argument that the parser accepted."""
    positions = {token.place.position for token in request.argv}
    for finding in findings:
        is_error = finding.code in _OF_THE_PARSER and finding.severity is Severity.ERROR
        if not is_error or finding.place.position not in positions:
            continue
        line = f"{finding.code}, SGLang {release}: {finding.message}"
        yield _finding(
            Severity.INFO,
            f"SGLang {release} accepts this, but {finding.code} rejects it: a bug in speclaunch",
            exactness_note(release),
            Fix(f"ignore {finding.code} here, and report the bug: {line}"),
            [finding.place],
            request,
        )


def _finding(
    severity: Severity, message: str, why: str, fix: Fix, places: Sequence[Place], request: Request
) -> Finding:
    hide = Redactor(secrets_of(request)).text
    others = tuple(dict.fromkeys(place for place in places if place != places[0]))
    return Finding(
        REFUSES.code,
        REFUSES.name,
        severity,
        hide(message),
        hide(why),
        Fix(hide(fix.text)),
        places[0],
        request.version,
        others,
        (DeploymentPlace(request.place, request.name),),
    )


def _model(request: Request) -> Place:
    found = request.values.get("model_path")
    return request.place if found is None else found.place


def _written(name: str, written: str, request: Request) -> str:
    found = request.values.get(name)
    return written if found is None else found.written


def _listed(names: Sequence[str], word: str) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


_MOST_CHECKED = 6
"""Maximum number of releases to check before assuming that all reject the deployment. They are the
newest five that reject the fewest arguments, and the oldest such release."""

_Key = tuple[str, Place]
"""Rule code and place of an error, without its message, which differs between releases.

The code is "" for all parser errors: an argument whose value a release rejects is unknown to
another release.
"""


def with_other_releases(
    findings: Sequence[Finding],
    others: Sequence[str],
    request: Callable[[str], Request],
    lookup: Lookup,
    rules: Iterable[Rule],
) -> tuple[Finding, ...]:
    """Return a deployment's findings at the newest release.

    An error becomes a warning if a release in `others` (older, ascending) lacks it. `request`
    returns the deployment's request for a release.
    """
    errors = _keys(findings)
    if not errors or not others:
        return tuple(findings)
    with_errors = tuple(rule for rule in rules if rule.can_be_error)
    taken = _taken(errors, others, cache(request), lookup, with_errors)
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
    errors: frozenset[_Key],
    others: Sequence[str],
    request: Callable[[str], Request],
    lookup: Lookup,
    rules: Sequence[Rule],
) -> tuple[frozenset[_Key], str, str] | None:
    """Return the errors that all releases have, and the newest range of releases without others.

    The range is its first and last release. None if all releases have every error, or there is no
    such range.
    """

    @cache
    def refused(version: str) -> frozenset[Place]:
        """Return the places of arguments that a release's parser rejects."""
        own = request(version)
        return frozenset(problem.place or own.place for problem in own.problems)

    @cache
    def plan(version: str) -> Plan:
        return resolve(request(version), lookup.facts(request(version)))

    def errors_in(version: str, rules: Iterable[Rule]) -> frozenset[_Key]:
        found = check_plan(plan(version), rules).results.findings
        of_parser = refused(version)  # arguments of a fork are only warnings in lint
        rejected = (finding for finding in found if finding.code in _OF_THE_PARSER)
        return _keys(found) | {_key(finding) for finding in rejected if finding.place in of_parser}

    everywhere: frozenset[Place] = frozenset()
    if all(refused(version) for version in reversed(others)):
        everywhere = frozenset.intersection(*map(refused, others))
    fewest = (version for version in reversed(others) if refused(version) == everywhere)
    newest = list(islice(fewest, _MOST_CHECKED - 1))
    oldest = islice((version for version in others if refused(version) == everywhere), 1)
    checked = dict.fromkeys((*newest, *oldest))
    codes = {code for code, _ in errors}
    related = [rule for rule in rules if _code(rule.code) in codes]
    own = {version: errors_in(version, related) for version in checked}
    always = errors.intersection(*own.values())
    if not checked or always == errors:
        return None
    without = (version for version, found in own.items() if found <= always)
    last = next((version for version in without if errors_in(version, rules) <= always), None)
    if last is None:
        return None
    first = last
    for version in reversed(others[: others.index(last)]):
        if refused(version) != everywhere or not errors_in(version, rules) <= always:
            break
        first = version
    return always, first, last


def _keys(findings: Iterable[Finding]) -> frozenset[_Key]:
    return frozenset(_key(finding) for finding in findings if finding.severity is Severity.ERROR)


def _key(finding: Finding) -> _Key:
    return _code(finding.code), finding.place


def _code(code: str) -> str:
    return "" if code in _OF_THE_PARSER else code


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
